package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/podyard/podyard/httpapi/client"
)

func secretCommands() []Command {
	return []Command{
		{
			Name: "secrets create", Args: "NAME", Remote: true, Summary: "store a value for variables of pods and workers",
			Help:    "A variable with {{ RUNPOD_SECRET_NAME }} has the value in containers that are made from now on. No answer shows it.",
			Example: "secrets create db_password -value -", New: createSecret,
		},
		{Name: "secrets list", Remote: true, Summary: "list secrets, without their values", Example: "secrets list", New: listSecrets},
		{Name: "secrets get", Args: "NAME", Remote: true, Summary: "show a secret, without its value", Example: "secrets get db_password", New: getSecret},
		{
			Name: "secrets update", Args: "NAME", Remote: true, Summary: "change the value or the description of a secret",
			Example: "secrets update db_password -value -", New: updateSecret,
		},
		{Name: "secrets delete", Args: "NAME...", Remote: true, Summary: "delete secrets; they are empty in new containers", Example: "secrets delete db_password", New: deleteSecrets},
	}
}

const valueUsage = "the `value`, or @FILE for what is in a file, or - for what comes from standard input"

func showSecret(c *Call, s client.NamedSecret) error {
	return show(c, s, field{"id", s.ID}, field{"name", s.Name}, field{"description", s.Description}, field{"created", at(s.CreatedAt)}, field{"value set", atOrNever(s.ValueSet)})
}

// secretValue reads a value. One newline at the end of a file or of the input is no part of it.
func (c *Call) secretValue(text string) (client.Secret, error) {
	var b []byte
	var err error
	switch {
	case text == "-" && c.Stdin == nil:
		err = errors.New("there is no standard input")
	case text == "-":
		b, err = io.ReadAll(io.LimitReader(c.Stdin, maxSecretInput))
	case strings.HasPrefix(text, "@"):
		b, err = os.ReadFile(text[1:])
	default:
		return client.Secret(text), nil
	}
	if err != nil {
		return "", &Error{ExitUsage, fmt.Errorf("-value: %w", err)}
	}
	value, _ := strings.CutSuffix(string(b), "\n")
	return client.Secret(value), nil
}

// maxSecretInput is more than a server takes, so that it says what is wrong.
const maxSecretInput = 17 << 20

func createSecret(f *flag.FlagSet) func(context.Context, *Call) error {
	value, description := f.String("value", "", valueUsage), f.String("description", "", "what it is for")
	return func(ctx context.Context, c *Call) error {
		v, err := c.secretValue(*value)
		if err != nil {
			return err
		}
		s, err := c.Client.Account.CreateSecret(ctx, c.Args[0], v, *description)
		return then(c, s, err, showSecret)
	}
}

func listSecrets(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		list, err := c.Client.Account.Secrets(ctx, "")
		return listOwned(
			c, list, err, func(s *client.NamedSecret) string { return s.Owner },
			column[client.NamedSecret]{"NAME", func(s *client.NamedSecret) string { return s.Name }},
			column[client.NamedSecret]{"ID", func(s *client.NamedSecret) string { return s.ID }},
			column[client.NamedSecret]{"CREATED", func(s *client.NamedSecret) string { return at(s.CreatedAt) }},
			column[client.NamedSecret]{"VALUE SET", func(s *client.NamedSecret) string { return atOrNever(s.ValueSet) }},
			column[client.NamedSecret]{"DESCRIPTION", func(s *client.NamedSecret) string { return short(s.Description, 60) }},
		)
	}
}

// named returns the caller's secret with a name, or with an id.
func (c *Call) named(ctx context.Context, name string) (client.NamedSecret, error) {
	list, err := c.Client.Account.Secrets(ctx, name)
	if err != nil {
		return client.NamedSecret{}, err
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return c.Client.Account.Secret(ctx, name)
}

func getSecret(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		s, err := c.named(ctx, c.Args[0])
		return then(c, s, err, showSecret)
	}
}

func updateSecret(f *flag.FlagSet) func(context.Context, *Call) error {
	value, description := f.String("value", "", valueUsage), f.String("description", "", "what it is for; empty: nothing")
	return func(ctx context.Context, c *Call) error {
		var u client.SecretSettings
		if c.Given["value"] {
			v, err := c.secretValue(*value)
			if err != nil {
				return err
			}
			u.Value = &v
		}
		if c.Given["description"] {
			u.Description = description
		}
		s, err := c.named(ctx, c.Args[0])
		if err != nil {
			return err
		}
		s, err = c.Client.Account.UpdateSecret(ctx, s.ID, u)
		return then(c, s, err, showSecret)
	}
}

func deleteSecrets(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		return c.each(c.Args, "deleted", func(name string) error {
			s, err := c.named(ctx, name)
			if err != nil {
				return err
			}
			return c.Client.Account.DeleteSecret(ctx, s.ID)
		})
	}
}
