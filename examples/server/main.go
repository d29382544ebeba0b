// Command server is podyard as a service: the library wired to a listener, with an
// endpoint and an image to try it with. Its flags and its start line are a contract that
// scripts rely on.
//
//	go run ./examples/server -help
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal does not wait for what the first began
	err := run(ctx, os.Args, os.Getenv, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		say(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

// run is main with its surroundings as arguments. It returns nil when it was asked to end.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	if len(args) > 1 && args[1] == webCommand {
		return serveWeb(ctx, env)
	}
	if len(args) > 1 && args[1] == helloCommand {
		return workHello(ctx, env)
	}
	s, err := parse(args, env, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.version {
		say(stdout, "podyard", version())
		return nil
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if s.check || s.backup != "" {
		return maintain(ctx, s, log, stdout)
	}
	if s.test != "" {
		return beDouble(ctx, s, log, stdout)
	}
	srv, err := open(ctx, s, log)
	if err != nil {
		return err
	}
	return srv.serve(ctx, stdout)
}

// say writes a line to somebody who may have gone: there is nobody else to tell.
func say(w io.Writer, a ...any) { _, _ = fmt.Fprintln(w, a...) }

func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "(devel)"
}
