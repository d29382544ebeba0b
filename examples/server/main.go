// Command server is podyard as a service, with an endpoint and an image to try it with.
// Scripts may rely on its flags and on its first line of output. docs/operating.md is
// the page for operators.
//
//	go run ./examples/server -help
//	go run ./examples/server help
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
	"strings"
	"syscall"

	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/examples/server/maintenance"
	"github.com/podyard/podyard/examples/server/settings"
	"github.com/podyard/podyard/examples/server/testdouble"
	"github.com/podyard/podyard/examples/server/version"
	cli "github.com/podyard/podyard/httpapi/command"
)

// launchCommand has this program become a pod, see process.Isolation.
const launchCommand = "podyard-launch"

func main() {
	if len(os.Args) > 1 && os.Args[1] == launchCommand {
		if err := process.LaunchPod(); err != nil {
			printLine(os.Stderr, "server:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal does not wait for what the first began
	err := run(ctx, os.Args, os.Getenv, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		printLine(os.Stderr, nameOf(os.Args)+":", err)
		os.Exit(cli.Code(err))
	}
}

// run is main with its surroundings as arguments. It returns nil when it was asked to end.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	if image := demo.Command(args); image != nil {
		return image(ctx, env)
	}
	if nameOf(args) == "podyard" {
		return commands(env).Run(ctx, args[1:], cli.IO{Env: env, Stdin: os.Stdin, Stdout: stdout, Stderr: stderr})
	}
	s, err := settings.Parse(args, env, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	return do(ctx, s, stdout, stderr)
}

// do does what the settings ask for.
func do(ctx context.Context, s *settings.Settings, stdout, stderr io.Writer) error {
	if s.Version {
		printLine(stdout, "podyard", version.String())
		return nil
	}
	// A reader of the output that goes away, such as a collector of logs that restarts, must not
	// end the service. Without this the system would, at the next line.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	log := s.NewLogger(stderr)
	// Package net/http prints what a worker sends after its answer, and more, by the global logger.
	slog.SetDefault(log)
	s.Upkeep.Data, s.Upkeep.Config, s.Upkeep.Logger = s.Data, s.Config, log
	switch {
	case s.Upkeep.Wanted():
		return s.ByFlag(maintenance.Run(ctx, &s.Upkeep, stdout, stderr))
	case s.Test != "":
		return testdouble.Serve(ctx, s.Double(log), stdout)
	}
	return serve(ctx, s, log, stdout)
}

// nameOf is what the program calls itself: without a command it is the server.
func nameOf(args []string) string {
	if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
		return "podyard"
	}
	return "server"
}

// printLine writes a line to somebody who may have gone: there is nobody else to tell.
func printLine(w io.Writer, a ...any) { _, _ = fmt.Fprintln(w, a...) }
