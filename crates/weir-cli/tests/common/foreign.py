"""A receiver that knows nothing of weir, and heeds no input."""
import socket, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind((sys.argv[1], int(sys.argv[2])))
print("listening; this is read by nobody", flush=True)
while True:
    receiver.recv(65536)
