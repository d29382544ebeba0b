package command

import (
	"flag"
	"io"
	"strings"
)

// manualName is the command that writes the manual page, for who makes a package.
const manualName = "__manual"

// manual writes the help of the program and of all its commands as a page for man.
func (p *Program) manual(w io.Writer) error {
	_, what, ok := strings.Cut(p.About, ": ") // before it are the name and the version
	if !ok {
		what = p.About
	}
	r := &roff{}
	r.put(".TH %s 1\n.SH NAME\n%s \\- %s\n", quoted(strings.ToUpper(p.Name)), escaped(p.Name), escaped(strings.TrimSuffix(what, ".")))
	r.put(".SH SYNOPSIS\n.B %s\nCOMMAND [flags] [arguments]\n", escaped(p.Name))
	if p.Default != "" {
		r.put(".SH DESCRIPTION\nFlags without a command are those of\n.BR %s .\n", escaped(p.Default))
	}
	r.put(".SH COMMANDS\n")
	for _, c := range sortedByName(p.all()) {
		if !c.Hidden {
			p.commandManual(r, &c)
		}
	}
	_, err := io.WriteString(w, r.String())
	return err
}

func (p *Program) commandManual(r *roff, c *Command) {
	f := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	p.define(c, f, &Call{IO: IO{Env: func(string) string { return "" }}})
	r.put(".SS %s\n%s.\n", quoted(strings.TrimSpace(c.Name+" "+c.Args)), escaped(sentence(c.Summary)))
	if c.Help != "" {
		r.put(".PP\n%s\n", escaped(c.Help))
	}
	r.put(".PP\n.EX\n%s\n.EE\n", escaped(p.Name+" "+c.Example))
	f.VisitAll(func(x *flag.Flag) {
		kind, usage := flag.UnquoteUsage(x)
		r.put(".TP\n.B %s\n", escaped(strings.TrimSpace("-"+x.Name+" "+kind)))
		r.put("%s\n", escaped(usage+defaultOf(x)))
	})
}

// defaultOf is the default of a flag as the help shows it; nothing where that is the zero value.
func defaultOf(x *flag.Flag) string {
	switch x.DefValue {
	case "", "0", "false", "0s":
		return ""
	}
	return " (default " + x.DefValue + ")"
}

// roff is text with requests for a formatter of manual pages.
type roff struct{ strings.Builder }

func (r *roff) put(format string, a ...any) { put(r, format, a...) }

// escaped is a text of which a formatter takes nothing for a request: no line begins with a
// control character, and a dash is one that can be copied.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// quoted is one argument of a request.
func quoted(text string) string { return `"` + strings.ReplaceAll(escaped(text), `"`, `\(dq`) + `"` }
