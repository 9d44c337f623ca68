package platform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"celld/cmd/celld/client"
	"celld/store/fault"
)

// as is a client of the first gateway in the name of a user.
func (p *Platform) as(user string) (*client.Client, error) {
	token := p.credentials.Users[user]
	if token == "" {
		return nil, fmt.Errorf("there is no token of user %s in %s", user, CredentialsPath(p.dir))
	}
	return client.New(p.credentials.Gateway, token)
}

// ensureUser makes a user with a token, unless the credentials hold one.
func (p *Platform) ensureUser(ctx context.Context, id, email, name string) error {
	if p.credentials.Users[id] != "" {
		return nil
	}
	var made struct {
		Token string `json:"token"`
	}
	err := p.admin.Post(ctx, "/users", map[string]any{"userId": id, "email": email, "name": name}, &made)
	if err != nil && fault.Of(err) == fault.Conflict {
		// Made by a start that broke off before it wrote the token down.
		err = p.admin.Post(ctx, "/users/"+id+"/tokens", map[string]any{"name": "celld dev"}, &made)
	}
	if err != nil {
		return fmt.Errorf("create user %s: %w", id, err)
	}
	if made.Token == "" {
		return fmt.Errorf("create user %s: the answer held no token", id)
	}
	// Into a copy: the map that was handed out before is not written again.
	users := maps.Clone(p.credentials.Users)
	users[id] = made.Token
	p.credentials.Users = users
	return p.saveCredentials()
}

// ensureTenant makes a tenant, unless there is one of that id.
func (p *Platform) ensureTenant(ctx context.Context, id, name, owner, cell string) error {
	body := map[string]any{"tenantId": id, "name": name, "owner": owner}
	if cell != "" {
		body["cell"] = cell
	}
	err := p.admin.Do(ctx, client.Call{Method: http.MethodPost, Path: "/tenants", Key: "celld-dev/" + id, Body: body})
	if err == nil || fault.Of(err) != fault.Conflict {
		return err
	}
	var found struct {
		State string `json:"state"`
	}
	if again := p.admin.Get(ctx, "/tenants/"+id, nil, &found); again != nil || found.State != "active" {
		return errors.Join(err, again)
	}
	return nil
}

// ensureMember brings a user into a tenant as people do: an invite and its
// acceptance.
func (p *Platform) ensureMember(ctx context.Context, owner *client.Client, tenant, user, email, role string) error {
	var members struct {
		Items []struct {
			User string `json:"userId"`
		} `json:"items"`
	}
	path := "/tenants/" + tenant
	if err := owner.Get(ctx, path+"/members", nil, &members); err != nil {
		return err
	}
	for _, m := range members.Items {
		if m.User == user {
			return nil
		}
	}
	var invite struct {
		Token string `json:"token"`
	}
	if err := owner.Post(ctx, path+"/invites", map[string]any{"email": email, "role": role}, &invite); err != nil {
		return fmt.Errorf("invite %s: %w", user, err)
	}
	guest, err := p.as(user)
	if err != nil {
		return err
	}
	defer guest.Close()
	if err := guest.Post(ctx, "/invites/accept", map[string]any{"token": invite.Token}, nil); err != nil {
		return fmt.Errorf("accept the invite of %s: %w", user, err)
	}
	return nil
}
