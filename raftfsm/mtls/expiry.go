package mtls

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Notice is how long before its end a certificate is warned of.
const Notice = 30 * 24 * time.Hour

// Expires is when the certificate ends. Its CA ends no earlier: Issue sees to it.
func (p *PKI) Expires() time.Time { return p.Cert.Leaf.NotAfter }

// Check says why others would not take this certificate at now: it has ended or not
// begun, or another CA than the one beside it has issued it.
func (p *PKI) Check(now time.Time) error {
	leaf := p.Cert.Leaf
	const renew = "issue a new one with celld ca issue"
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate of %s expired at %s: %s", p.Identity, stamp(leaf.NotAfter), renew)
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the certificate of %s is not valid before %s: set this machine's clock, or %s", p.Identity, stamp(leaf.NotBefore), renew)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: p.Roots, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	var foreign x509.UnknownAuthorityError
	if errors.As(err, &foreign) {
		return fmt.Errorf("the certificate of %s is not of the CA in %s beside it: take both from one celld ca issue: %w", p.Identity, CAFile, err)
	}
	return err
}

// Warning says that the certificate ends soon, "" if it does not.
func (p *PKI) Warning(now time.Time) string {
	left := p.Expires().Sub(now)
	if left > Notice {
		return ""
	}
	return fmt.Sprintf("the certificate of %s expires at %s, in %d days: issue a new one with celld ca issue and restart the process",
		p.Identity, stamp(p.Expires()), int(left/(24*time.Hour)))
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Watch warns in the log, now and once a day, while the certificate ends soon,
// until stop is called, which waits for its goroutine. The gauge it registers tells
// the end all the time.
func (p *PKI) Watch(log *slog.Logger, metrics prometheus.Registerer, clock func() time.Time) (stop func(), err error) {
	ends := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "celld", Subsystem: "certificate", Name: "expires_seconds",
		Help: "When the process's certificate expires, as a Unix time.", ConstLabels: prometheus.Labels{"identity": p.Identity}})
	ends.Set(float64(p.Expires().Unix()))
	if err := metrics.Register(ends); err != nil {
		return nil, err
	}
	warn := func() {
		if said := p.Warning(clock()); said != "" {
			log.Warn(said)
		}
	}
	warn()
	tick, over, done := time.NewTicker(24*time.Hour), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-tick.C:
				warn()
			case <-over:
				return
			}
		}
	}()
	return func() {
		tick.Stop()
		close(over)
		<-done
		metrics.Unregister(ends)
	}, nil
}
