package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"celld/cmd/celld/settings"
	"celld/raftfsm/mtls"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	certLife = 2 * 365 * 24 * time.Hour
)

type caCommand struct {
	Init  caInit  `cmd:"" help:"Make the cluster's CA, once. Keep its folder off the machines of the cluster."`
	Issue caIssue `cmd:"" help:"Make the identity of one process: certificate, key, and a gateway's context keys."`
}

type caInit struct {
	Dir string `required:"" placeholder:"DIR" help:"Folder for the CA's certificate (ca.pem) and key (ca-key.pem)."`
}

func (c *caInit) Run(out io.Writer) error {
	ca, err := mtls.NewCA(time.Now(), caLife)
	if err != nil {
		return err
	}
	if err := ca.Save(c.Dir); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "wrote the CA to %s; next: celld ca issue --dir %s --node C2/n1\n", c.Dir, c.Dir)
	return err
}

type caIssue struct {
	Dir     string `required:"" placeholder:"DIR" help:"The CA's folder."`
	Node    string `xor:"who" required:"" placeholder:"C2/n1" help:"The node to issue for."`
	Gateway string `xor:"who" required:"" placeholder:"G1" help:"The gateway to issue for."`
	Out     string `placeholder:"DIR" help:"Folder for what is issued; by default one below the CA's folder."`
}

func (c *caIssue) Run(out io.Writer) error {
	identity, name := mtls.Gateway(c.Gateway), c.Gateway
	if c.Node != "" {
		cell, node, ok := strings.Cut(c.Node, "/")
		if !ok {
			return &usageError{fmt.Errorf("--node: %q is not of the form C2/n1", c.Node)}
		}
		identity, name = mtls.Node(cell, node), cell+"-"+node
	}
	if _, err := mtls.Parse(identity); err != nil {
		return &usageError{err}
	}
	ca, err := mtls.LoadCA(c.Dir)
	if err != nil {
		return fmt.Errorf("read the CA (celld ca init makes one): %w", err)
	}
	pki, err := ca.Issue(identity, time.Now(), certLife)
	if err != nil {
		return err
	}
	dir := c.Out
	if dir == "" {
		dir = filepath.Join(c.Dir, "issued", name)
	}
	if err := pki.Save(dir); err != nil {
		return err
	}
	if c.Gateway == "" {
		_, err = fmt.Fprintf(out, "wrote %s to %s; the node's setting identity names this folder\n", identity, dir)
		return err
	}
	// A renewal keeps the key that the nodes know.
	if _, err := settings.ContextKey(filepath.Join(dir, settings.ContextKeyFile)); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := settings.NewContextKey(dir); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "wrote %s to %s; the gateway's setting identity names this folder, and every node's contextKeys a copy of its %s\n",
		identity, dir, settings.ContextPublicFile)
	return err
}
