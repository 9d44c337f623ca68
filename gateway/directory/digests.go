package directory

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"celld/raftfsm"
	"celld/raftfsm/dirfsm"
	"celld/raftfsm/verify"
)

// digestWait bounds how long an answer about a mark waits for this replica's digest.
const digestWait = time.Second

// newVerifier compares this replica of directory.db with those of the other
// gateways once a day. A replica that differs is told about and left as it is: a
// gateway holds one file, and is replaced as a whole. The returned function tells
// the verifier who asks on its behalf, once there is a group.
func newVerifier(cfg *Config, space *dirfsm.Space) (v *verify.Verifier, by func(*Directory)) {
	var d *Directory // set before the verifier starts
	metrics := cfg.Metrics
	if metrics != nil {
		metrics = prometheus.WrapRegistererWith(prometheus.Labels{"group": groupName, "member": cfg.Name}, metrics)
	}
	v = verify.New(verify.Config{
		Self: cfg.Name, Number: dirfsm.NumMark, Files: space,
		Targets: func() ([]string, error) { return []string{""}, nil },
		Ask: func(ctx context.Context, m raftfsm.Member, mark string) (verify.Result, error) {
			return d.askDigest(ctx, m.Name, mark)
		},
		Clock: cfg.Clock.Now, Logger: cfg.Logger.With("node", cfg.Name, "group", groupName), Metrics: metrics,
	})
	return v, func(of *Directory) { d = of }
}

func (d *Directory) startDigests(v *verify.Verifier) error {
	d.digests = v
	return v.Start(d.group)
}

// askDigest asks another gateway what it has found at a mark.
func (d *Directory) askDigest(ctx context.Context, name, mark string) (verify.Result, error) {
	got, err := d.call(ctx, name, pathDigest, &request{Mark: mark})
	if err != nil {
		return verify.Result{}, err
	}
	if got.Digest == nil || got.Digest.Mark != mark {
		return verify.Result{}, raftfsm.ErrUnknown
	}
	return *got.Digest, nil
}

func (d *Directory) serveDigest(ctx context.Context, _ string, in request) (answer, error) {
	if d.digests == nil {
		return answer{}, verify.ErrNoMark
	}
	ctx, cancel := context.WithTimeout(ctx, digestWait)
	defer cancel()
	r, err := d.digests.Result(ctx, in.Mark)
	return answer{Digest: &r}, err
}
