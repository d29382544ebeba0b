// Package config makes a server from a configuration file, with all backends of this
// module, and keeps the server's own files in a data directory.
//
//	c, err := config.Read("podyard.json")
//	parts, err := config.Open(ctx, c, &config.Options{Data: "/var/lib/podyard", Addr: listener.Addr()})
//	srv, err := parts.Server(ctx)
//	err = srv.Run(ctx, server.On(listener, srv.Handler()))
//
// Between Open and Server the program may change Parts.Options: another authenticator,
// other limits, a fleet of its own.
//
// # The file
//
// The file is JSON with comments as in JavaScript. Every field has a default. An
// unknown field is an error. Errors are of type *[Error] and name file, line, column
// and field. docs/configuration.md shows a file with every field.
//
// # The data directory
//
//	store/       the durable store (package disk)
//	process/     the disks, volumes and logs of pods that are processes
//	docker/      records about containers
//	api-key      the key with full access that was made at the first start
//	secret-key   the key that secrets in the store are sealed with
//	address      where workers look for the server
//	audit/       the audit log
//	control/     the socket at which Backup asks the server that uses the store
//
// Without a data directory everything is in memory, processes have a temporary
// directory, and containers end with the server.
package config
