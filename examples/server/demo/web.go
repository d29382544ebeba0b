package demo

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"
)

// WebImage is an image of a pod to try: a small web server.
const WebImage = "podyard/web"

// serveWeb is a small web server on the port that a pod was given. It says where it is
// and logs each request.
func serveWeb(ctx context.Context, env func(string) string) error {
	host := env("RUNPOD_PUBLIC_IP")
	if host == "" {
		host = "127.0.0.1"
	}
	port := env("PORT")
	if port == "" {
		port = "0"
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	log.SetFlags(0)
	log.SetOutput(os.Stdout)
	log.Printf("pod %s listens on %s", env("RUNPOD_POD_ID"), l.Addr())
	srv := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			log.Printf("%s %q", r.Method, r.URL.Path)                      //nolint:gosec // quoted
			_, _ = fmt.Fprintln(w, "hello from pod", env("RUNPOD_POD_ID")) // to somebody who may have gone
		}),
	}
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	if err := srv.Serve(l); ctx.Err() == nil {
		return err
	}
	log.Print("stopped")
	return nil
}
