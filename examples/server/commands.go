package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"

	"github.com/podyard/podyard/examples/server/settings"
	"github.com/podyard/podyard/examples/server/version"
	laptop "github.com/podyard/podyard/examples/server/work"
	cli "github.com/podyard/podyard/httpapi/command"
)

// commands is this program with its commands: those that flags ask for, too, and those that
// call a server.
func commands(env func(string) string) *cli.Program {
	return &cli.Program{
		Name: "podyard", Default: "serve", About: "podyard " + version.String() + ": pods, and endpoints with a queue of jobs.",
		Commands: append([]cli.Command{
			own(env, "serve", "", "serve until a signal ends it", "serve -data /var/lib/podyard", func(*settings.Settings, []string) {}),
			own(env, "test", "", "be the test double, in memory: docs/testing.md", "test -addr 127.0.0.1:0",
				func(s *settings.Settings, _ []string) { s.Test = cmp.Or(s.Test, "127.0.0.1:0") }, "addr", "test", "public-url", "config", "log", "log-level"),
			laptop.Command(env, open),
			own(env, "backup", "DIR", "copy the store to a new directory, also while a server runs", "backup -data /var/lib/podyard ./backup",
				func(s *settings.Settings, args []string) { s.Upkeep.Backup = args[0] }, storeFlags...),
			own(env, "restore", "DIR", "make the store from a copy", "restore -data ./restored ./backup",
				func(s *settings.Settings, args []string) { s.Upkeep.Restore = args[0] }, storeFlags...),
			own(env, "check", "", "verify the store: the exit code is 1 when something is lost", "check -data /var/lib/podyard",
				func(s *settings.Settings, _ []string) { s.Upkeep.Check = true }, storeFlags...),
			own(env, "repair", "", "drop what cannot be read of the store, and name it", "repair -data /var/lib/podyard",
				func(s *settings.Settings, _ []string) { s.Upkeep.Repair = true }, storeFlags...),
			versionCommand(),
		}, cli.All()...),
	}
}

// versionCommand needs no settings: a fault in them keeps nobody from knowing the version.
func versionCommand() cli.Command {
	return cli.Command{
		Name: "version", Summary: "print the version", Example: "version -o json",
		New: func(f *flag.FlagSet) func(context.Context, *cli.Call) error {
			form := f.String("o", "text", "`form` of the output: text or json")
			return func(_ context.Context, c *cli.Call) error {
				switch *form {
				case "text":
					_, err := fmt.Fprintln(c.Stdout, "podyard", version.String())
					return err
				case "json":
					e := json.NewEncoder(c.Stdout)
					e.SetIndent("", "  ")
					return e.Encode(version.Build())
				}
				return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("version: -o %q: must be text or json", *form)}
			}
		},
	}
}

// storeFlags are those of commands for the store.
var storeFlags = []string{"data", "local", "name", "config", "log", "log-level"}

// own is a command that does what flags without a command do, too. It has only some of the
// flags, or all of them if none is named.
func own(env func(string) string, name, args, summary, example string, set func(s *settings.Settings, args []string), flags ...string) cli.Command {
	return cli.Command{
		Name: name, Args: args, Summary: summary, Example: example,
		New: func(f *flag.FlagSet) func(context.Context, *cli.Call) error {
			s := settings.Define(f, env, flags...)
			return func(ctx context.Context, c *cli.Call) error {
				maps.Copy(s.Given, c.Given)
				set(s, c.Args)
				if err := s.Finish(); err != nil {
					return err
				}
				return do(ctx, s, c.Stdout, c.Stderr)
			}
		},
	}
}
