package command

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

func (p *Program) helpCommand() Command {
	return Command{
		Name: "help", Args: "[COMMAND...]", Summary: "show the commands, or one of them with its flags", Example: "help jobs submit",
		New: func(*flag.FlagSet) func(context.Context, *Call) error {
			return func(_ context.Context, c *Call) error { return p.printHelp(c.Stdout, c.Args) }
		},
	}
}

// printHelp writes the help of the program, of a group or of a command.
func (p *Program) printHelp(w io.Writer, words []string) error {
	if len(words) > 0 && isHelp(words[0]) {
		words = words[1:]
	}
	if len(words) > 0 && len(p.group(words[0])) > 0 && (len(words) == 1 || isHelp(words[1])) {
		return p.printList(w, words[0]+" ")
	}
	if len(words) == 0 {
		return p.printList(w, "")
	}
	c, _, err := p.find(words)
	if err != nil {
		return err
	}
	return p.printCommand(w, c)
}

// sentence begins with a capital letter.
func sentence(summary string) string { return strings.ToUpper(summary[:1]) + summary[1:] }

// printList writes one line for each command whose name begins with prefix.
func (p *Program) printList(to io.Writer, prefix string) error {
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	if prefix == "" {
		put(w, "%s\n\n", p.About)
	}
	put(w, "Usage: %s %sCOMMAND [flags] [arguments]\n\n", p.Name, prefix)
	for _, c := range sortedByName(p.all()) {
		if !c.Hidden && strings.HasPrefix(c.Name, prefix) {
			put(w, "  %s\t%s\n", c.Name, c.Summary)
		}
	}
	if p.Default != "" && prefix == "" {
		put(w, "\nFlags without a command are those of %s: %s help %s\n", p.Default, p.Name, p.Default)
	}
	put(w, "\n%s help %sCOMMAND has flags and an example.\n", p.Name, prefix)
	return w.Flush()
}

// printCommand writes the help of a command.
func (p *Program) printCommand(w io.Writer, c *Command) error {
	f := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	p.define(c, f, &Call{IO: IO{Env: func(string) string { return "" }}})
	args := ""
	if c.Args != "" {
		args = " " + c.Args
	}
	put(w, "Usage: %s %s [flags]%s\n\n%s.\n", p.Name, c.Name, args, sentence(c.Summary))
	if c.Help != "" {
		put(w, "\n%s\n", c.Help)
	}
	_, err := fmt.Fprintf(w, "\nExample:\n  %s %s\n", p.Name, c.Example)
	f.SetOutput(w)
	if some := false; true {
		f.VisitAll(func(*flag.Flag) { some = true })
		if some {
			put(w, "\nFlags:\n")
			f.PrintDefaults()
		}
	}
	return err
}
