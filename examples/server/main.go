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
	case s.maintains():
		return maintain(ctx, s, log, stdout)
	case s.test != "":
		return testdouble.Serve(ctx, s.double(log), stdout)
	}
	return serve(ctx, s, log, stdout)
}

// maintain restores, repairs, verifies and copies the store, as far as it was asked for.
func maintain(ctx context.Context, s *settings, log *slog.Logger, stdout io.Writer) error {
	o := &config.Options{Data: s.data, Logger: log}
	for _, step := range []struct {
		flag   string
		wanted bool
		do     func() error
		said   string
	}{
		{"-restore", s.restore != "", func() error { return config.Restore(ctx, s.config, o, s.restore) }, "restored from " + s.restore},
		{"-repair", s.repair, func() error { return config.Repair(ctx, s.config, o, stdout) }, ""},
		{"-check", s.check, func() error { return config.Check(ctx, s.config, o, stdout) }, ""},
		{"-rotate-secret-key", s.rotate, func() error { return config.RotateSecretKey(ctx, s.config, o) }, "the secrets of the store have another key, in secret-key"},
		{"-backup", s.backup != "", func() error { return config.Backup(ctx, s.config, o, s.backup) }, "copied to " + s.backup},
	} {
		if !step.wanted {
			continue
		}
		if err := step.do(); err != nil {
			return byFlag(fmt.Errorf("%s: %w", step.flag, err))
		}
		if step.said != "" {
			printLine(stdout, step.said)
		}
	}
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
