/*
 * libuv as an echo server: one loop on one thread, as libuv is used.
 *
 * What is received is sent from where it lies with uv_try_write, as libuv's documentation advises; what
 * the system does not take is copied and written with uv_write, and nothing is received from that
 * connection until it is gone. So one buffer of the loop does for all connections.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { BUFFER_BYTES = 4096, BACKLOG = 4096 };

struct connection {
    uv_tcp_t stream;
    uv_write_t write;
    char *left; /* what the system did not take yet */
};

static char *buffer;
static size_t buffer_bytes = BUFFER_BYTES;

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *received);

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *room) {
    (void)handle;
    (void)suggested;
    *room = uv_buf_init(buffer, (unsigned)buffer_bytes);
}

static void on_closed(uv_handle_t *handle) {
    struct connection *connection = handle->data;
    free(connection->left);
    free(connection);
}

static void close_it(struct connection *connection) {
    if (!uv_is_closing((uv_handle_t *)&connection->stream))
        uv_close((uv_handle_t *)&connection->stream, on_closed);
}

static void on_written(uv_write_t *write, int status) {
    struct connection *connection = write->data;
    free(connection->left);
    connection->left = NULL;
    if (status < 0 || uv_read_start((uv_stream_t *)&connection->stream, give_buffer, on_read) < 0)
        close_it(connection);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *received) {
    struct connection *connection = stream->data;
    if (count == 0) /* nothing was there after all */
        return;
    if (count < 0) { /* the end, or an error; all that was received is sent */
        close_it(connection);
        return;
    }
    uv_buf_t all = uv_buf_init(received->base, (unsigned)count);
    int taken = uv_try_write(stream, &all, 1);
    if (taken == UV_EAGAIN)
        taken = 0;
    if (taken < 0) {
        close_it(connection);
        return;
    }
    if (taken == count)
        return;
    size_t left = (size_t)count - (size_t)taken;
    connection->left = malloc(left);
    if (connection->left == NULL) {
        close_it(connection);
        return;
    }
    memcpy(connection->left, received->base + taken, left);
    uv_buf_t rest = uv_buf_init(connection->left, (unsigned)left);
    uv_read_stop(stream);
    if (uv_write(&connection->write, stream, &rest, 1, on_written) < 0)
        close_it(connection);
}

static void on_connection(uv_stream_t *listener, int status) {
    if (status < 0) {
        /* For want of descriptors libuv accepts and closes what waits, with one it keeps for that. */
        fprintf(stderr, "cannot accept: %s\n", uv_strerror(status));
        return;
    }
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL || uv_tcp_init(listener->loop, &connection->stream) < 0) {
        fprintf(stderr, "no memory for a connection\n");
        exit(1);
    }
    connection->stream.data = connection;
    connection->write.data = connection;
    uv_stream_t *stream = (uv_stream_t *)&connection->stream;
    if (uv_accept(listener, stream) < 0 || uv_tcp_nodelay(&connection->stream, 1) < 0 ||
        uv_read_start(stream, give_buffer, on_read) < 0)
        close_it(connection);
}

static void must(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, uv_strerror(result));
        exit(1);
    }
}

int main(int argc, char **argv) {
    long port = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    int right = argc >= 3 && argc <= 5 && port > 0 && port < 65536;
    if (argc > 3)
        right = right && strcmp(argv[3], "loop") == 0;
    if (argc > 4) {
        long bytes = strtol(argv[4], NULL, 10);
        right = right && bytes > 0;
        buffer_bytes = (size_t)bytes;
    }
    struct sockaddr_storage address;
    right = right && (uv_ip4_addr(argv[1], (int)port, (struct sockaddr_in *)&address) == 0 ||
                      uv_ip6_addr(argv[1], (int)port, (struct sockaddr_in6 *)&address) == 0);
    if (!right) {
        fprintf(stderr, "usage: %s IP PORT [loop [BUFFER_BYTES]]\n", argv[0]);
        return 2;
    }
    buffer = malloc(buffer_bytes);
    if (buffer == NULL || signal(SIGPIPE, SIG_IGN) == SIG_ERR)
        return 1;
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t listener;
    must(uv_tcp_init(loop, &listener), "uv_tcp_init");
    must(uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0), "uv_tcp_bind");
    must(uv_listen((uv_stream_t *)&listener, BACKLOG, on_connection), "uv_listen");
    return uv_run(loop, UV_RUN_DEFAULT);
}
