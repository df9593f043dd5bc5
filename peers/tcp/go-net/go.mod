module weir.example/peers/tcp/go-net

go 1.19
