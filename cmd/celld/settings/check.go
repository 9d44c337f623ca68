package settings

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"celld/raftfsm/mtls"
	"celld/store/tenant"
)

// problems gathers everything that is wrong, so that one start shows it all.
type problems []error

func (p *problems) addf(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

func (p *problems) need(flag, value string) {
	if value == "" {
		p.addf("--%s (in the file %q) is missing", flag, key(flag))
	}
}

func (p *problems) id(flag, value string) {
	p.need(flag, value)
	if value != "" && !tenant.ValidID(value) {
		p.addf("--%s: %q is not a name: a letter and up to 31 letters, digits or hyphens", flag, value)
	}
}

func (p *problems) addr(flag, value string) {
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		p.addf("--%s: %q is not an address of the form host:port", flag, value)
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && host == "" {
		p.addf("--%s: %q has no usable port", flag, value)
	}
}

func (p *problems) members(flag string, all map[string]string) {
	if len(all) == 0 {
		p.need(flag, "")
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p.id(flag, name)
		p.addr(flag, all[name])
	}
}

func (p *problems) secret(flag, path string) {
	p.need(flag, path)
	if path == "" {
		return
	}
	if err := Private(path); err != nil {
		p.addf("--%s: %w", flag, err)
	}
}

func (p *problems) file(flag, path string) {
	p.need(flag, path)
	if path == "" {
		return
	}
	if _, err := readBounded(path); err != nil {
		p.addf("--%s: %w", flag, err)
	}
}

// identity holds the certificate against the name that the process claims.
func (p *problems) identity(dir, want string) {
	pki, err := mtls.LoadDir(dir)
	switch {
	case err != nil:
		p.addf("--identity: %w; celld ca issue writes such a folder", err)
	case pki.Identity != want:
		p.addf("--identity: %s holds the certificate of %s, this is %s", dir, pki.Identity, want)
	default:
		if err := pki.Check(time.Now()); err != nil {
			p.addf("--identity: %s: %w", dir, err)
		}
	}
}

func (c *Common) check(p *problems, identity string) {
	p.need("data", c.Data)
	if c.Inner == "" {
		p.need("inner", "")
	} else {
		p.addr("inner", c.Inner)
	}
	p.need("identity", c.Identity)
	if c.Identity != "" {
		p.identity(c.Identity, identity)
	}
	if c.Pprof != "" {
		p.addr("pprof", c.Pprof)
	}
	if c.StopWithin <= 0 {
		p.addf("--stop-within must be positive")
	}
	if c.Election <= 0 {
		p.addf("--election must be positive")
	}
}

// Warning says that the identity's certificate ends soon, "" if it does not.
func (c *Common) Warning(now time.Time) string {
	pki, err := mtls.LoadDir(c.Identity)
	if err != nil {
		return "" // Check says it
	}
	return pki.Warning(now)
}

// Check says everything that is wrong with the settings, or nil.
func (n *Node) Check() error {
	var p problems
	p.id("cell", n.Cell)
	p.id("name", n.Name)
	n.check(&p, mtls.Node(n.Cell, n.Name))
	p.members("nodes", n.Nodes)
	if _, in := n.Nodes[n.Name]; !in && n.Name != "" {
		p.addf("--nodes does not name this node, %s", n.Name)
	}
	if n.Metrics != "" {
		p.addr("metrics", n.Metrics)
	}
	if n.CacheMib < 0 {
		p.addf("--cache-mib must not be negative")
	}
	if n.FetchRate < 0 {
		p.addf("--fetch-rate must be positive")
	}
	if n.DigestEvery < 0 || n.DigestRate < 0 {
		p.addf("--digest-every and --digest-rate must be positive")
	}
	if n.KeepKeys != 0 && n.KeepKeys < Duration(24*time.Hour) {
		p.addf("--keep-keys must be 24h at least")
	}
	if n.KeepAudit != 0 && n.KeepAudit < n.KeepKeys {
		p.addf("--keep-audit must be at least as long as --keep-keys")
	}
	if len(n.ContextKeys) == 0 {
		p.need("context-keys", "")
	}
	for _, name := range slices.Sorted(maps.Keys(n.ContextKeys)) {
		if _, err := ContextPublic(n.ContextKeys[name]); err != nil {
			p.addf("--context-keys: %s: %w", name, err)
		}
	}
	return errors.Join(p...)
}

// Check says everything that is wrong with the settings, or nil.
func (g *Gateway) Check() error {
	var p problems
	p.id("name", g.Name)
	g.check(&p, mtls.Gateway(g.Name))
	p.members("gateways", g.Gateways)
	if _, in := g.Gateways[g.Name]; !in && g.Name != "" {
		p.addf("--gateways does not name this gateway, %s", g.Name)
	}
	p.addr("http", g.HTTP)
	p.addr("admin", g.Admin)
	p.secret("operator-token-file", g.OperatorTokenFile)
	if g.Identity != "" {
		p.secret("identity", filepath.Join(g.Identity, ContextKeyFile))
	}
	if g.RequestLog < 0 {
		p.addf("--request-log must not be negative")
	}
	if g.SlowRequest <= 0 {
		p.addf("--slow-request must be positive")
	}
	if (g.HTTPCert == "") != (g.HTTPKey == "") {
		p.addf("--http-cert and --http-key belong together")
	} else if g.HTTPKey != "" {
		p.file("http-cert", g.HTTPCert)
		p.secret("http-key", g.HTTPKey)
	}
	return errors.Join(p...)
}
