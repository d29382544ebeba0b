package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// rawReceiver takes connections of webhooks until ctx ends. It reads the head of a request, and answer
// writes what it wants.
func rawReceiver(ctx context.Context, n *tenant, answer func(w io.Writer) error) (url string) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Error(err)
		return ""
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			go func() {
				defer stop()
				defer c.Close()
				r := bufio.NewReader(c)
				for line := ""; line != "\r\n"; {
					var err error
					if line, err = r.ReadString('\n'); err != nil {
						return
					}
				}
				for err := error(nil); err == nil; {
					err = answer(c)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// ofReceiver is an abuse by what a receiver of webhooks answers.
func ofReceiver(name string, answer func(w io.Writer) error) abuse {
	return abuse{door: "Answers to webhooks", name: name, do: func(ctx context.Context, n *tenant) {
		url := rawReceiver(ctx, n, answer)
		everywhere(ctx, 8, func(int) {
			n.do(ctx, "POST", "/v2/echo/run", `{"input":{"a":1},"webhook":"`+url+`"}`)
		})
	}}
}

// Abuses by receivers of webhooks, and by readers of events.
var abusesOfReceivers = []abuse{
	ofReceiver("webhooks whose answers have headers without end", func(w io.Writer) error {
		_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: "+megabyte[:1000]+"\r\n", 100))
		return err
	}),
	ofReceiver("webhooks whose answers have early hints without end", func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 100))
		return err
	}),
	ofReceiver("webhooks whose answers trickle", func(w io.Writer) error {
		time.Sleep(20 * time.Millisecond)
		_, err := io.WriteString(w, "H")
		return err
	}),
	ofReceiver("webhooks whose answers have a body without end", func(w io.Writer) error {
		_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"+megabyte)
		return err
	}),
	{door: "Event streams", name: "event streams that nobody reads", slow: true, do: func(ctx context.Context, n *tenant) {
		go everywhere(ctx, 4, func(int) { n.do(ctx, "POST", "/v2/echo/run", `{"input":{"chunks":5}}`) })
		n.silent(ctx, 300, func(int) string { return n.head("GET", "/v2/echo/events") })
	}},
	{door: "Event streams", name: "more followers of logs than a user may have", slow: true, refused: true, do: func(ctx context.Context, n *tenant) {
		go func() {
			for n.used("streams") < 512 && ctx.Err() == nil { // or the next one would get the place of one of these
				time.Sleep(50 * time.Millisecond)
			}
			for ctx.Err() == nil {
				wait, cancel := context.WithTimeout(ctx, 10*time.Second)
				n.do(wait, http.MethodGet, "/v2/pods/"+n.pod+"/logs", "")
				cancel()
				time.Sleep(200 * time.Millisecond)
			}
		}()
		n.silent(ctx, 560, func(int) string { return n.head("GET", "/v2/pods/"+n.pod+"/logs") })
	}},
}
