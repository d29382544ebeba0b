package command

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// completeName is the command that the scripts call. It has no flags: what follows it are the
// words of another command line.
const completeName = "__complete"

// The scripts ask the program itself, so that they know every command and flag.
const (
	bashScript = `# Completion for bash: source this file, or put it into /etc/bash_completion.d.
_PROGRAM() {
	local IFS=$'\n'
	COMPREPLY=($(PROGRAM __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _PROGRAM PROGRAM
`
	zshScript = `#compdef PROGRAM
# Completion for zsh: put this file into a directory of $fpath, as _PROGRAM.
_PROGRAM() {
	local -a found
	found=("${(@f)$(PROGRAM __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	compadd -a found || _files
}
if [ "$funcstack[1]" = "_PROGRAM" ]; then _PROGRAM "$@"; else compdef _PROGRAM PROGRAM; fi
`
	fishScript = `# Completion for fish: put this file into ~/.config/fish/completions, as PROGRAM.fish.
complete -c PROGRAM -a '(PROGRAM __complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
`
)

func scripts() map[string]string {
	return map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}
}

func (p *Program) completionCommand() Command {
	return Command{
		Name: "completion", Args: "SHELL", Summary: "print what makes a shell complete commands and flags: bash, zsh or fish",
		Example: "completion bash > /etc/bash_completion.d/" + p.Name,
		New: func(*flag.FlagSet) func(context.Context, *Call) error {
			return func(_ context.Context, c *Call) error {
				script, ok := scripts()[c.Args[0]]
				if !ok {
					return usagef("unknown shell %q, want one of %s", c.Args[0], strings.Join(slices.Sorted(maps.Keys(scripts())), ", "))
				}
				_, err := io.WriteString(c.Stdout, strings.ReplaceAll(script, "PROGRAM", p.Name))
				return err
			}
		},
	}
}

// complete writes the words that may stand in the place of the last one.
func (p *Program) complete(w io.Writer, words []string) error {
	last := ""
	if len(words) > 0 {
		last = words[len(words)-1]
		words = words[:len(words)-1]
	}
	found := slices.DeleteFunc(p.candidates(words, last), func(s string) bool { return !strings.HasPrefix(s, last) })
	slices.Sort(found)
	for _, s := range slices.Compact(found) {
		if _, err := fmt.Fprintln(w, s); err != nil {
			return err
		}
	}
	return nil
}

func (p *Program) candidates(before []string, last string) []string {
	c, rest, err := p.find(before)
	switch {
	case err == nil && c != nil && c.Name == "help":
		return p.words(before)
	case err == nil && c != nil && (strings.HasPrefix(last, "-") || len(rest) > 0):
		return p.flagsOf(c)
	case err == nil && c != nil && c.Name == "completion":
		return slices.Collect(maps.Keys(scripts()))
	case err == nil && c != nil:
		return p.group(c.Name)
	case len(before) == 0 && strings.HasPrefix(last, "-"):
		return p.defaultFlags()
	}
	return p.words(before)
}

// words are those that may follow others in the name of a command.
func (p *Program) words(before []string) (list []string) {
	if len(before) > 0 && before[0] == "help" {
		before = before[1:]
	}
	if len(before) > 0 {
		return p.group(before[0])
	}
	for _, c := range p.all() {
		if first, _, _ := strings.Cut(c.Name, " "); !c.Hidden {
			list = append(list, first)
		}
	}
	return list
}

func (p *Program) flagsOf(c *Command) (list []string) {
	f := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	p.define(c, f, &Call{IO: IO{Env: func(string) string { return "" }}})
	f.VisitAll(func(f *flag.Flag) { list = append(list, "-"+f.Name) })
	return list
}

// defaultFlags are those of the command that needs no name.
func (p *Program) defaultFlags() []string {
	i := slices.IndexFunc(p.Commands, func(c Command) bool { return c.Name == p.Default })
	if i < 0 {
		return nil
	}
	return p.flagsOf(&p.Commands[i])
}
