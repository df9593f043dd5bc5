// Go's net package as an echo server: a goroutine for each connection, Read and then Write; or
// io.Copy, which makes a splice(2) of it on Linux. Go sets TCP_NODELAY by itself, and the backlog to
// net.core.somaxconn.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

const pause = 50 * time.Millisecond

func main() {
	form, bufferBytes := "read", 4096
	words := os.Args[1:]
	right := len(words) >= 2 && len(words) <= 4
	if right && len(words) > 2 {
		form = words[2]
	}
	if right && len(words) > 3 {
		bytes, err := strconv.Atoi(words[3])
		right = err == nil && bytes > 0
		bufferBytes = bytes
	}
	if !right || form != "read" && form != "splice" {
		fmt.Fprintf(os.Stderr, "usage: %s IP PORT [read|splice [BUFFER_BYTES]]\n", os.Args[0])
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(words[0], words[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		connection, err := listener.Accept()
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, "cannot accept:", err)
			time.Sleep(pause)
		case form == "splice":
			go splice(connection)
		default:
			go echo(connection, bufferBytes)
		}
	}
}

func echo(connection net.Conn, bufferBytes int) {
	defer connection.Close()
	buffer := make([]byte, bufferBytes)
	for {
		count, err := connection.Read(buffer)
		if count > 0 {
			if _, err := connection.Write(buffer[:count]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func splice(connection net.Conn) {
	defer connection.Close()
	// What ends it is seen at the other end.
	_, _ = io.Copy(connection, connection)
}
