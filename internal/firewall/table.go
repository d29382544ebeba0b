// Package firewall keeps a table of nftables with the rules of one runtime of pods. Neither the
// operator nor another program has rules in this table, and a packet that it rejects cannot be
// accepted by a rule of another table. The program nft must be there, and needs root.
package firewall

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"os/exec"
	"strings"
)

// A Table is a table of the family inet. It is not safe for concurrent use.
type Table struct {
	Name string

	rules   string // as last set; empty: there is no table
	listing string // what nft listed after that
}

// Name returns a name that belongs to an instance: a text that no other one on this machine has.
func Name(instance string) string { return "podyard_" + Hash(instance, 16) }

// Hash returns length lower-case letters and digits that are a hash of text.
func Hash(text string, length int) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:length]
}

// unknown marks a table of an earlier server, or one that could not be set.
const unknown = "unknown"

// Open returns the table of a name, after it has checked that rules can be set on this machine.
// The text is as for Set. The table of an earlier server stays until Set or Remove.
func Open(ctx context.Context, name, text string) (*Table, error) {
	if _, err := Run(ctx, text, "-c", "-f", "-"); err != nil {
		return nil, err
	}
	return &Table{Name: name, rules: unknown}, nil
}

// Exists reports whether there may be a table: one that was set, or that of an earlier server.
func (t *Table) Exists() bool { return t.rules != "" }

// Set makes the table have the rules of text, which must replace the whole table. It does nothing
// if the table was last set to them and is as it was then.
func (t *Table) Set(ctx context.Context, text string) (err error) {
	if text == t.rules && t.Unchanged(ctx) {
		return nil
	}
	t.rules = unknown
	if _, err := Run(ctx, text, "-f", "-"); err != nil {
		return fmt.Errorf("the rules cannot be set: %w", err)
	}
	if t.listing, err = t.list(ctx); err != nil {
		return fmt.Errorf("the rules cannot be read: %w", err)
	}
	t.rules = text
	return nil
}

// Unchanged reports whether the table is as it was last set.
func (t *Table) Unchanged(ctx context.Context) bool {
	now, err := t.list(ctx)
	return err == nil && now == t.listing
}

func (t *Table) list(ctx context.Context) (string, error) {
	return Run(ctx, "", "list", "table", "inet", t.Name)
}

// Remove removes the table. It does nothing where there is none.
func (t *Table) Remove(ctx context.Context) error {
	if t.rules == "" {
		return nil
	}
	// Adding a table that exists changes nothing: the delete always has a table.
	_, err := Run(ctx, "table inet "+t.Name+"\ndelete table inet "+t.Name+"\n", "-f", "-")
	if err == nil {
		t.rules, t.listing = "", ""
	}
	return err
}

// Run runs the program nft and returns its output.
func Run(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stdin = strings.NewReader(input)
	var said, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &wrong
	if err := cmd.Run(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(wrong.String()), "\n")
		return "", fmt.Errorf("nft: %w: %s", err, first)
	}
	return said.String(), nil
}
