// Command server is podyard as a service, with an endpoint and an image to try it with.
// Scripts may rely on its flags and on its first line of output. docs/operating.md is
// the page for operators.
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

	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/examples/server/testdouble"
	"github.com/podyard/podyard/httpapi/server/config"
)

// launchCommand has this program become a pod, see process.Isolation.
const launchCommand = "podyard-launch"

func main() {
	if len(os.Args) > 1 && os.Args[1] == launchCommand {
		printLine(os.Stderr, "server:", process.LaunchPod())
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal does not wait for what the first began
	err := run(ctx, os.Args, os.Getenv, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		printLine(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

// run is main with its surroundings as arguments. It returns nil when it was asked to end.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	if image := demo.Command(args); image != nil {
		return image(ctx, env)
	}
	s, err := parse(args, env, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.version {
		printLine(stdout, "podyard", version())
		return nil
	}
	log := s.logger(stderr)
	switch {
	case s.check || s.backup != "":
		return maintain(ctx, s, log, stdout)
	case s.test != "":
		return testdouble.Serve(ctx, s.double(log), stdout)
	}
	return serve(ctx, s, log, stdout)
}

// maintain verifies or copies the store.
func maintain(ctx context.Context, s *settings, log *slog.Logger, stdout io.Writer) error {
	o := &config.Options{Data: s.data, Logger: log}
	if s.check {
		if err := config.Check(ctx, s.config, o, stdout); err != nil {
			return byFlag(fmt.Errorf("-check: %w", err))
		}
	}
	if s.backup == "" {
		return nil
	}
	if err := config.Backup(ctx, s.config, o, s.backup); err != nil {
		return byFlag(fmt.Errorf("-backup: %w", err))
	}
	printLine(stdout, "copied to "+s.backup)
	return nil
}

// printLine writes a line to somebody who may have gone: there is nobody else to tell.
func printLine(w io.Writer, a ...any) { _, _ = fmt.Fprintln(w, a...) }

func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "(devel)"
}
