package mtls

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const day = 24 * time.Hour

func TestCertificateEnds(t *testing.T) {
	now := time.Now()
	ca, err := NewCA(now, 1000*day)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewCA(now, 1000*day)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ca.Issue(Node("C2", "n1"), now, 40*day)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at        time.Time
		warns     bool
		complaint string
	}{
		{now, false, ""}, {now.Add(9 * day), false, ""}, {now.Add(11 * day), true, ""}, {now.Add(39 * day), true, ""},
		{now.Add(41 * day), true, "expired"}, {now.Add(-2 * time.Hour), false, "not valid before"},
	} {
		if said := p.Warning(c.at); (said != "") != c.warns {
			t.Errorf("%s: %q", c.at, said)
		}
		switch err := p.Check(c.at); {
		case c.complaint == "" && err != nil:
			t.Errorf("%s: %v", c.at, err)
		case c.complaint != "" && (err == nil || !strings.Contains(err.Error(), c.complaint)):
			t.Errorf("%s: %v, want %q", c.at, err, c.complaint)
		}
	}
	foreign, err := newPKI(encodeCerts(p.Cert.Certificate...), mustKey(t, p), other.pem)
	if err != nil {
		t.Fatal(err)
	}
	if err := foreign.Check(now); err == nil || !strings.Contains(err.Error(), "not of the CA") {
		t.Errorf("a certificate of another CA: %v", err)
	}
}

func mustKey(t *testing.T, p *PKI) []byte {
	t.Helper()
	key, err := encodeKey(p.Cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestWatchWarnsAndTells(t *testing.T) {
	now := time.Now()
	ca, err := NewCA(now, 1000*day)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ca.Issue(Gateway("G1"), now, 29*day)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	stop, err := p.Watch(slog.New(slog.NewTextHandler(&log, nil)), registry, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	got, err := registry.Gather()
	if err != nil || len(got) != 1 || got[0].GetName() != "celld_certificate_expires_seconds" || int64(got[0].Metric[0].Gauge.GetValue()) != p.Expires().Unix() {
		t.Errorf("metrics: %v, %v", got, err)
	}
	stop()
	if got, err := registry.Gather(); err != nil || len(got) != 0 {
		t.Errorf("after the stop: %v, %v", got, err)
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "expires at") {
		t.Errorf("the log: %s", log.String())
	}
}
