package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"celld/gateway/problem"
	"celld/raftfsm/cellfsm"
	"celld/store/room"
)

// progressEvery is how often a long transfer is mentioned in the log.
const progressEvery = 10 * time.Second

// errStalled ends a transfer of which nothing comes any more.
var errStalled = fmt.Errorf("nothing came for %s", pieceTime)

// get asks a peer; the caller closes the body of an answer.
func (p *Peer) get(ctx context.Context, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://cell"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := p.Client.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if at := resp.Header.Get(HeaderAsOf); at != "" {
		return nil, fmt.Errorf("it stores no such tenant at index %s", at)
	}
	return nil, problem.Parse(resp.StatusCode, resp.Header, body)
}

// download writes the file that p has to where st wants it, durably.
func (f *Fetcher) download(ctx context.Context, p Peer, st *cellfsm.Staging, least uint64) (head Header, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(pieceTime, func() { cancel(errStalled) })
	defer stall.Stop()
	resp, err := p.get(ctx, pathOf(st.Tenant().UID, least))
	if err != nil {
		return head, err
	}
	defer resp.Body.Close()
	in, err := newReceiver(resp.Body)
	if err != nil {
		return head, err
	}
	if free, reserve := f.cfg.Room.Free(); free < reserve+uint64(in.head.bytes()) && reserve > 0 {
		return head, fmt.Errorf("it has %d bytes: %w", in.head.bytes(), f.cfg.Room.Err())
	}
	to, err := os.OpenFile(st.Path(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return head, err
	}
	err = f.copy(ctx, in, to, stall, p.Name)
	if err == nil {
		err = to.Sync()
	}
	return in.head, errors.Join(err, to.Close())
}

func (f *Fetcher) copy(ctx context.Context, in *receiver, to io.Writer, stall *time.Timer, from string) error {
	told := time.Now()
	for {
		stall.Reset(pieceTime)
		piece, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return err
		}
		stall.Stop() // what this node makes it wait for is not the peer's
		if err := f.limiter.WaitN(ctx, len(piece)); err != nil {
			return err
		}
		if f.cfg.Room.Level() == room.None {
			return f.cfg.Room.Err()
		}
		if _, err := to.Write(piece); err != nil {
			return err
		}
		f.metrics.bytes.Add(float64(len(piece)))
		if time.Since(told) >= progressEvery {
			told = time.Now()
			f.cfg.Logger.Info("fetching a tenant", "uid", in.head.UID, "tenant", in.head.Tenant, "from", from,
				"bytes", in.head.bytes()-in.left, "of", in.head.bytes())
		}
	}
}
