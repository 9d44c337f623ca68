package admin

import (
	"context"
	"io"

	"celld/cmd/celld/settings"
)

type userCommand struct {
	Create userCreate `cmd:"" help:"Create a user and print an API token, which is shown this once."`
}

type userCreate struct {
	ID           string `name:"id" placeholder:"U7" help:"The user's id; one is made if empty."`
	Email        string `required:"" help:"The user's e-mail address."`
	Name         string `help:"The user's name."`
	PasswordFile string `placeholder:"FILE" help:"File with a password; nobody else may read it."`
}

func (c *userCreate) Run(ctx context.Context, all *Command, out io.Writer) error {
	body := map[string]any{"email": c.Email}
	setText(body, "userId", c.ID)
	setText(body, "name", c.Name)
	if c.PasswordFile != "" {
		password, err := settings.Secret(c.PasswordFile)
		if err != nil {
			return err
		}
		body["password"] = password
	}
	return all.call(out, func(s *session) error {
		var doc document
		if err := s.Post(ctx, "/users", body, &doc); err != nil {
			return err
		}
		return s.show(doc, column{"user", "userId"}, column{"token", "token"})
	})
}

func setText(body map[string]any, field, value string) {
	if value != "" {
		body[field] = value
	}
}
