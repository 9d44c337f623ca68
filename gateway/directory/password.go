package directory

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"golang.org/x/crypto/argon2"

	"celld/store/fault"
)

// Hashing is how passwords are hashed, with argon2id. One hash takes MemoryKiB
// of memory and about 30 ms of one CPU, so only a few run at a time.
type Hashing struct {
	MemoryKiB uint32 // default 19,456
	Passes    uint32 // default 2
	Parallel  int    // hashes at a time; default half the CPUs, at least 1
	Queue     int    // logins that wait for one; over it: 503 busy. Default 64
}

func (h *Hashing) complete() {
	if h.MemoryKiB == 0 {
		h.MemoryKiB = 19 << 10
	}
	if h.Passes == 0 {
		h.Passes = 2
	}
	if h.Parallel <= 0 {
		h.Parallel = max(1, runtime.GOMAXPROCS(0)/2)
	}
	if h.Queue <= 0 {
		h.Queue = 64
	}
}

const (
	saltBytes = 16
	hashBytes = 32
	maxKiB    = 1 << 20 // bounds on what a stored hash may ask for
	maxPasses = 64
)

var errTooManyLogins = (&fault.Error{Kind: fault.Unavailable, Slug: "busy", Detail: "too many logins are waiting; retry"}).After(time.Second)

// hasher runs argon2id with bounded concurrency.
type hasher struct {
	cfg     Hashing
	running chan struct{}
	waiting chan struct{} // running ones included
}

func newHasher(cfg Hashing) *hasher {
	return &hasher{cfg: cfg, running: make(chan struct{}, cfg.Parallel), waiting: make(chan struct{}, cfg.Parallel+cfg.Queue)}
}

func (h *hasher) turn(ctx context.Context, work func()) error {
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return errTooManyLogins
	}
	select {
	case h.running <- struct{}{}:
		defer func() { <-h.running }()
	case <-ctx.Done():
		return errTooManyLogins.Because(context.Cause(ctx))
	}
	work()
	return nil
}

// phc is a stored password in the PHC string format.
type phc struct {
	memory, passes uint32
	lanes          uint8
	salt, sum      []byte
}

func (p phc) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.memory, p.passes, p.lanes,
		base64.RawStdEncoding.EncodeToString(p.salt), base64.RawStdEncoding.EncodeToString(p.sum))
}

func parsePHC(s string) (phc, error) {
	var p phc
	var version int
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return p, errors.New("stored password is not argon2id")
	}
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return p, errors.New("stored password has an unknown argon2 version")
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.memory, &p.passes, &p.lanes); err != nil {
		return p, errors.New("stored password has unreadable parameters")
	}
	var err1, err2 error
	p.salt, err1 = base64.RawStdEncoding.DecodeString(parts[4])
	p.sum, err2 = base64.RawStdEncoding.DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(p.sum) != hashBytes || p.lanes == 0 ||
		p.memory > maxKiB || p.passes == 0 || p.passes > maxPasses {
		return p, errors.New("stored password is out of bounds")
	}
	return p, nil
}

func (p phc) compute(password string) []byte {
	return argon2.IDKey([]byte(password), p.salt, p.passes, p.memory, p.lanes, hashBytes)
}

// hash makes the stored form of a password.
func (h *hasher) hash(ctx context.Context, random io.Reader, password string) (string, error) {
	p := phc{memory: h.cfg.MemoryKiB, passes: h.cfg.Passes, lanes: 1, salt: make([]byte, saltBytes)}
	if _, err := io.ReadFull(random, p.salt); err != nil {
		return "", err
	}
	if err := h.turn(ctx, func() { p.sum = p.compute(password) }); err != nil {
		return "", err
	}
	return p.String(), nil
}

// verify compares a password with a stored one. Where there is none it takes the
// same time and says no, so that time does not tell which users exist.
func (h *hasher) verify(ctx context.Context, stored, password string) (bool, error) {
	p := phc{memory: h.cfg.MemoryKiB, passes: h.cfg.Passes, lanes: 1, salt: make([]byte, saltBytes)}
	if stored != "" {
		var err error
		if p, err = parsePHC(stored); err != nil {
			return false, err
		}
	}
	var sum []byte
	if err := h.turn(ctx, func() { sum = p.compute(password) }); err != nil {
		return false, err
	}
	return stored != "" && subtle.ConstantTimeCompare(sum, p.sum) == 1, nil
}
