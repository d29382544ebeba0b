// Package sshfront is an SSH server before pods (docs/decisions.md 54): shells, commands, files and
// forwarded ports of a pod whose image has no sshd. Clients log in as <pod>-<token> with a public key of
// /v2/account/ssh-keys.
//
// It listens on nothing: the program hands it a listener.
package sshfront
