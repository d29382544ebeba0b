// Package command has the commands of a program that calls a server over HTTP: jobs, pods,
// keys, logs and others. Programs mount them beside commands of their own:
//
//	p := &command.Program{Name: "podyard", Commands: append(own, command.All()...)}
//	err := p.Run(ctx, os.Args[1:], command.IO{Env: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr})
//	os.Exit(command.Code(err))
//
// A command finds its server and its key in the flags -url and -key, in the environment
// variables PODYARD_URL and PODYARD_API_KEY, or, on the machine of the server, in the data
// directory that -data or PODYARD_DATA names.
//
// Results go to standard output as a table, or as JSON with -o json; everything else goes to
// standard error. Exit codes are those of [Code].
package command
