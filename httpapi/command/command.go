package command

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/podyard/podyard/httpapi/client"
)

// A Command is one command of a program.
type Command struct {
	// Name is one word or more: "jobs list". Commands whose first words are the same are a
	// group.
	Name string
	// Args names the arguments: "ENDPOINT [JOB]". One in brackets may be absent, and after
	// "..." there may be more of the last one.
	Args    string
	Summary string // one line without a full stop
	Help    string // what else there is to know; may be empty
	Example string // a command line, without the name of the program
	// Remote says that the command calls a server: it gets a client, and the flags -url, -key,
	// -data, -owner and -o.
	Remote bool
	// Hidden commands are not in the help.
	Hidden bool
	// New defines the flags of the command, and returns what runs it.
	New func(f *flag.FlagSet) func(context.Context, *Call) error
}

// IO is what a command reads and writes. Stdin may be nil.
type IO struct {
	Env            func(string) string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// A Call is one run of a command.
type Call struct {
	IO

	Args   []string        // as many as Command.Args allows
	Given  map[string]bool // the flags of the command line
	Client *client.Client  // nil unless the command is Remote

	program *Program
	server  *server
}

// A Program is a program with commands. It has the commands help and completion besides its
// own. It is not changed by its methods.
type Program struct {
	Name     string // as its users type it
	About    string // the first lines of the help
	Commands []Command
	// Default is the name of the command whose flags may be given without a command. Empty:
	// none.
	Default string
}

// All returns the commands that call a server.
func All() []Command {
	return slices.Concat(
		jobCommands(), podCommands(), clusterCommands(), insideCommands(), endpointCommands(), endpointChangeCommands(), recordCommands(), keyCommands(), secretCommands(), adminCommands(), operatorCommands(),
	)
}

// Run runs the command that args, without the name of the program, ask for. It returns nil when
// the command is done. An error says what is wrong in words, and [Code] has the exit code for
// it.
func (p *Program) Run(ctx context.Context, args []string, streams IO) error {
	if len(args) > 0 && args[0] == completeName {
		return p.complete(streams.Stdout, args[1:])
	}
	if len(args) > 0 && args[0] == manualName {
		return p.manual(streams.Stdout)
	}
	c, rest, err := p.find(args)
	if err != nil {
		return err
	}
	if c == nil {
		return p.printHelp(streams.Stdout, args)
	}
	call := &Call{IO: streams, program: p, Given: map[string]bool{}}
	f := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	run := p.define(c, f, call)
	call.Args, err = parse(f, rest)
	if errors.Is(err, flag.ErrHelp) {
		return p.printCommand(streams.Stdout, c)
	}
	if err == nil {
		err = checkArgs(c, call.Args)
	}
	if err != nil {
		return &Error{ExitUsage, fmt.Errorf("%s: %w: see %s help %s", c.Name, err, p.Name, c.Name)}
	}
	f.Visit(func(set *flag.Flag) { call.Given[set.Name] = true })
	if c.Remote {
		if err := call.connect(); err != nil {
			return &Error{ExitUsage, fmt.Errorf("%s: %w", c.Name, err)}
		}
	}
	return inWords(ctx, c.Name, call, run(ctx, call))
}

// define defines all flags of a command.
func (p *Program) define(c *Command, f *flag.FlagSet, call *Call) func(context.Context, *Call) error {
	run := c.New(f)
	if c.Remote {
		call.server = defineServer(f, call.Env)
	}
	return run
}

// all are the commands of the program with those that every program has.
func (p *Program) all() []Command {
	return append(slices.Clone(p.Commands), p.helpCommand(), p.completionCommand())
}

// find returns the command that args begin with, and the rest of args. It returns no command
// where args ask for the help of the program or of a group.
func (p *Program) find(args []string) (c *Command, rest []string, err error) {
	commands := p.all()
	for n := min(len(args), 2); n > 0; n-- {
		name := strings.Join(args[:n], " ")
		if i := slices.IndexFunc(commands, func(c Command) bool { return c.Name == name }); i >= 0 {
			return &commands[i], args[n:], nil
		}
	}
	if len(args) == 0 || isHelp(args[0]) {
		return nil, nil, nil
	}
	group := p.group(args[0])
	switch {
	case len(group) == 0:
		return nil, nil, &Error{ExitUsage, fmt.Errorf("unknown command %q%s: see %s help", args[0], didYouMean(args[0], commands), p.Name)}
	case len(args) > 1 && isHelp(args[1]):
		return nil, nil, nil
	case len(args) == 1:
		return nil, nil, &Error{ExitUsage, fmt.Errorf("%s: which of %s? See %s help %s", args[0], strings.Join(group, ", "), p.Name, args[0])}
	}
	return nil, nil, &Error{ExitUsage, fmt.Errorf("%s: unknown command %q, want one of %s", args[0], args[1], strings.Join(group, ", "))}
}

// group returns the second words of the commands with the first word name.
func (p *Program) group(name string) (list []string) {
	for _, c := range p.Commands {
		if first, second, ok := strings.Cut(c.Name, " "); ok && first == name {
			list = append(list, second)
		}
	}
	return list
}

// didYouMean names a command with the same beginning.
func didYouMean(word string, commands []Command) string {
	best, most := "", 1
	for _, c := range commands {
		first, _, _ := strings.Cut(c.Name, " ")
		same := 0
		for same < min(len(first), len(word)) && first[same] == word[same] {
			same++
		}
		if same > most && !c.Hidden {
			best, most = first, same
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

func isHelp(arg string) bool {
	return slices.Contains([]string{"help", "-h", "-help", "--help"}, arg)
}

// parse reads flags and arguments in any order. After "--" there are only arguments.
func parse(f *flag.FlagSet, args []string) (list []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		rest := f.Args()
		if len(rest) == 0 {
			return list, nil
		}
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			return append(list, rest...), nil
		}
		list, args = append(list, rest[0]), rest[1:]
	}
}

// bounds returns how many arguments a command takes. The most is -1 where there is no limit.
func (c *Command) bounds() (least, most int) {
	for word := range strings.FieldsSeq(c.Args) {
		if !strings.HasPrefix(word, "[") {
			least++
		}
		most++
		if strings.Contains(word, "...") {
			return least, -1
		}
	}
	return least, most
}

func checkArgs(c *Command, args []string) error {
	least, most := c.bounds()
	switch {
	case len(args) < least:
		return fmt.Errorf("%s is missing", strings.Trim(strings.Fields(c.Args)[len(args)], "."))
	case most >= 0 && len(args) > most:
		return fmt.Errorf("unexpected argument %q", args[most])
	case slices.Contains(args, ""):
		return errors.New("an argument is empty")
	}
	return nil
}

// Arg returns an argument, or nothing where it is absent.
func (c *Call) Arg(n int) string {
	if n < len(c.Args) {
		return c.Args[n]
	}
	return ""
}

// sortedByName are commands as the help lists them.
func sortedByName(list []Command) []Command {
	return slices.SortedStableFunc(slices.Values(list), func(a, b Command) int { return cmp.Compare(a.Name, b.Name) })
}
