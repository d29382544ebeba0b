package container_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/problem"
)

func TestACommandIsStoredInOneText(t *testing.T) {
	for _, row := range []struct {
		what   string
		was    string
		change container.CommandChange
		want   string
	}{
		{"nothing keeps what was", "a  'b c'", container.CommandChange{}, "a  'b c'"},
		{"args replace both", `{"entrypoint":["sh"],"cmd":["x"]}`, container.CommandChange{Args: new("y")}, "y"},
		{"empty args take the image's", "a", container.CommandChange{Args: new("")}, ""},
		{"both lists", "", container.CommandChange{Entrypoint: []string{"/bin/sh"}, Cmd: []string{"-c", "a && <b>"}}, `{"entrypoint":["/bin/sh"],"cmd":["-c","a && <b>"]}`},
		{"cmd alone", "", container.CommandChange{Cmd: []string{"a b"}}, `{"cmd":["a b"]}`},
		{"cmd keeps the entrypoint", `{"entrypoint":["sh"],"cmd":["x"]}`, container.CommandChange{Cmd: []string{"y"}}, `{"entrypoint":["sh"],"cmd":["y"]}`},
		{"entrypoint keeps words", "a 'b c'", container.CommandChange{Entrypoint: []string{"sh"}}, `{"entrypoint":["sh"],"cmd":["a","b c"]}`},
		{"an empty list takes the image's", `{"entrypoint":["sh"],"cmd":["x"]}`, container.CommandChange{Entrypoint: []string{}}, `{"cmd":["x"]}`},
		{"two empty lists are no command", `{"entrypoint":["sh"]}`, container.CommandChange{Entrypoint: []string{}, Cmd: []string{}}, ""},
		{"what was read and sent back changes nothing", "a  'b c'", container.CommandChange{Entrypoint: []string{}, Cmd: []string{"a", "b c"}}, "a  'b c'"},
	} {
		if got := row.change.Apply(row.was); got != row.want {
			t.Errorf("%s: %q becomes %q, want %q", row.what, row.was, got, row.want)
		}
	}
}

func TestBothFormsOfArgsAreRead(t *testing.T) {
	for args, want := range map[string]container.Command{
		"":           {},
		"run 'a b'":  {Cmd: []string{"run", "a b"}},
		`{"cmd":[]}`: {Cmd: []string{}},
		`{}`:         {Cmd: []string{"{}"}},
		`{"a": 1}`:   {Cmd: []string{"{a:", "1}"}}, // words, as before there were objects
		`{"cmd" x`:   {Cmd: []string{"{cmd", "x"}},
		` {"cmd":[""], "entrypoint":["sh","-c"]} `: {Entrypoint: []string{"sh", "-c"}, Cmd: []string{""}},
	} {
		got, err := container.ParseCommand(args)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("ParseCommand(%q): %v (-want +got):\n%s", args, err, diff)
		}
	}
	for _, args := range []string{`{"cmd":"x"}`, `{"entrypoint":[1]}`, `{"cmd":["x"],"env":{}}`, `{"cmd":["\u0000"]}`, "a 'b"} {
		if got, err := container.ParseCommand(args); err == nil {
			t.Errorf("ParseCommand(%q) = %+v, want an error", args, got)
		}
	}
}

func TestArgsAndListsMustSayTheSame(t *testing.T) {
	sh, x := []string{"sh"}, []string{"x"}
	for _, row := range []struct {
		c    container.CommandChange
		want problem.Kind // 0: none
	}{
		{container.CommandChange{Args: new("x"), Cmd: x}, 0},
		{container.CommandChange{Args: new("x"), Cmd: x, Entrypoint: []string{}}, 0},
		{container.CommandChange{Args: new(`{"entrypoint":["sh"],"cmd":["x"]}`), Cmd: x, Entrypoint: sh}, 0},
		{container.CommandChange{Args: new(""), Cmd: []string{}}, 0},
		{container.CommandChange{Args: new("y"), Cmd: x}, problem.BadRequest},
		{container.CommandChange{Args: new(""), Cmd: x}, problem.BadRequest},
		{container.CommandChange{Args: new("x"), Entrypoint: sh}, problem.BadRequest},
		{container.CommandChange{Args: new("a 'b"), Cmd: x}, problem.Invalid},
		{container.CommandChange{Cmd: []string{"a", "b\x00"}}, problem.Invalid},
	} {
		var faults problem.Violations
		container.Rules{Violations: &faults}.Command(row.c)
		err := faults.Err(nil)
		if (err == nil) != (row.want == 0) || err != nil && problem.KindOf(err) != row.want {
			t.Errorf("%+v: %v, want kind %v", row.c, err, row.want)
		}
	}
}

func TestATemplateGivesTheListThatIsMissing(t *testing.T) {
	const template = `{"entrypoint":["sh"],"cmd":["x"]}`
	for _, row := range []struct {
		c    container.CommandChange
		want string
	}{
		{container.CommandChange{}, template},
		{container.CommandChange{Args: new("y")}, "y"},
		{container.CommandChange{Cmd: []string{"y"}}, `{"entrypoint":["sh"],"cmd":["y"]}`},
		{container.CommandChange{Entrypoint: []string{}}, `{"cmd":["x"]}`},
	} {
		if got := row.c.Or(template).Apply(""); got != row.want {
			t.Errorf("%+v over the template: %q, want %q", row.c, got, row.want)
		}
	}
}
