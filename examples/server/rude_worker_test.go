package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// rudeWorkerEnv makes this test binary a worker of a load-balancing endpoint that does harm.
const rudeWorkerEnv = "TEST_RUDE_WORKER"

// rudeWorker serves until the process ends. The end of a path says what it answers.
func rudeWorker() error {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			r := bufio.NewReader(c)
			for answerRudely(c, r) {
			}
		}()
	}
}

// answerRudely answers one request. It reports whether the connection can be used again.
func answerRudely(c net.Conn, r *bufio.Reader) bool {
	line, err := r.ReadString('\n')
	for h := line; err == nil && h != "\r\n"; h, err = r.ReadString('\n') {
	}
	if err != nil {
		return false
	}
	w := bufio.NewWriterSize(c, 64<<10)
	defer w.Flush()
	path, _, _ := strings.Cut(strings.TrimPrefix(line, "GET "), " ")
	switch path {
	case "/headers":
		_, _ = w.WriteString("HTTP/1.1 200 OK\r\nX-Large: ")
		_, _ = w.WriteString(strings.Repeat("x", 9<<20))
		_, _ = w.WriteString("\r\nContent-Length: 0\r\n\r\n")
	case "/lines":
		_, _ = w.WriteString("HTTP/1.1 200 OK\r\n")
		for i := range 900_000 {
			_, _ = fmt.Fprintf(w, "%x:\r\n", i)
		}
		_, _ = w.WriteString("Content-Length: 0\r\n\r\n")
	case "/early":
		for err == nil {
			_, err = w.WriteString("HTTP/1.1 103 Early Hints\r\nLink: </" + strings.Repeat("x", 1000) + ">\r\n\r\n")
		}
		return false
	case "/000", "/099", "/1000":
		_, _ = w.WriteString("HTTP/1.1 " + path[1:] + " What\r\nContent-Length: 0\r\n\r\n")
	case "/endless":
		_, _ = w.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		for part := strings.Repeat("x", 1<<20); err == nil; {
			_, err = w.WriteString(part)
		}
		return false
	case "/trailers":
		_, _ = w.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n1\r\na\r\n0\r\n")
		for i := range 200_000 {
			_, _ = fmt.Fprintf(w, "%x:\r\n", i)
		}
		_, _ = w.WriteString("\r\n")
	case "/silent":
		time.Sleep(time.Hour)
	default:
		_, _ = w.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
	return true
}
