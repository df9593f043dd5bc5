// Boost.Asio as an echo server: one io_context, run by one thread or by one for each core.
//
// The session is the one of Asio's own examples (echo/async_tcp_echo_server.cpp): async_read_some,
// then async_write, with a buffer in the session. An io_context of one thread is told so, which spares
// it work. Asio tries a call before it waits for the socket.

#include <boost/asio.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr int backlog = 4096;
constexpr auto pause = std::chrono::milliseconds(50);
std::size_t buffer_bytes = 4096;

class session : public std::enable_shared_from_this<session> {
public:
    explicit session(tcp::socket socket) : socket_(std::move(socket)), buffer_(buffer_bytes) {}

    void start() {
        boost::system::error_code error;
        socket_.set_option(tcp::no_delay(true), error);
        if (!error) receive();
    }

private:
    void receive() {
        socket_.async_read_some(
            asio::buffer(buffer_),
            [self = shared_from_this()](boost::system::error_code error, std::size_t count) {
                if (!error) self->send(count);
            });
    }

    void send(std::size_t count) {
        asio::async_write(
            socket_, asio::buffer(buffer_.data(), count),
            [self = shared_from_this()](boost::system::error_code error, std::size_t) {
                if (!error) self->receive();
            });
    }

    tcp::socket socket_;
    std::vector<char> buffer_;
};

class server {
public:
    server(asio::io_context& context, const tcp::endpoint& endpoint)
        : acceptor_(context), timer_(context) {
        acceptor_.open(endpoint.protocol());
        acceptor_.set_option(tcp::acceptor::reuse_address(true));
        acceptor_.bind(endpoint);
        acceptor_.listen(backlog);
        accept();
    }

private:
    void accept() {
        acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
            if (!error) {
                std::make_shared<session>(std::move(socket))->start();
                return accept();
            }
            std::fprintf(stderr, "cannot accept: %s\n", error.message().c_str());
            timer_.expires_after(pause);
            timer_.async_wait([this](boost::system::error_code) { accept(); });
        });
    }

    tcp::acceptor acceptor_;
    asio::steady_timer timer_;
};

} // namespace

int main(int argc, char** argv) {
    const bool multi = argc > 3 && std::strcmp(argv[3], "multi") == 0;
    const bool form = argc <= 3 || multi || std::strcmp(argv[3], "current") == 0;
    const long port = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 0;
    const long bytes = argc > 4 ? std::strtol(argv[4], nullptr, 10) : 4096;
    if (argc < 3 || argc > 5 || !form || port < 1 || port > 65535 || bytes < 1) {
        std::fprintf(stderr, "usage: %s IP PORT [current|multi [BUFFER_BYTES]]\n", argv[0]);
        return 2;
    }
    buffer_bytes = static_cast<std::size_t>(bytes);
    try {
        const tcp::endpoint endpoint(
            asio::ip::make_address(argv[1]), static_cast<unsigned short>(port));
        const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
        const unsigned threads = multi ? cores : 1;
        asio::io_context context(multi ? static_cast<int>(threads) : 1);
        server server(context, endpoint);
        std::vector<std::thread> others;
        for (unsigned i = 1; i < threads; ++i) others.emplace_back([&context] { context.run(); });
        context.run();
        for (auto& other : others) other.join();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        return 1;
    }
}
