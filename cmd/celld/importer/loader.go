package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"celld/store/tenant"
)

// How often the progress line is written.
const (
	onTerminal  = 200 * time.Millisecond
	offTerminal = 5 * time.Second
)

// errTooMany ends an import by --max-errors.
var errTooMany = errors.New("too many rows failed")

// loader is one import.
type loader struct {
	command *Command
	console *console
	tally   *tally
	client  *client
	sources []*source // customers before invoices
	report  *os.File

	customers *known
}

func (l *loader) close() error {
	var errs []error
	for _, s := range l.sources {
		errs = append(errs, s.file.Close())
	}
	if l.report != nil {
		errs = append(errs, l.report.Close())
	}
	if l.tally != nil && l.tally.reportErr != nil {
		errs = append(errs, fmt.Errorf("writing the report: %w", l.tally.reportErr))
	}
	if l.client != nil {
		l.client.http.CloseIdleConnections()
	}
	return errors.Join(errs...)
}

// run loads the files one after the other. An error means that rows were left
// unread.
func (l *loader) run(ctx context.Context) error {
	for _, s := range l.sources {
		k, err := l.known(ctx, s)
		if err != nil {
			return err
		}
		if err := l.file(ctx, s, k); err != nil {
			return err
		}
	}
	return nil
}

// known loads what the tenant has of the source's kind, and its customers.
func (l *loader) known(ctx context.Context, s *source) (*known, error) {
	if s.layout.kind.name == "customers" {
		l.customers = newKnown(s.layout)
		return l.customers, l.walk(ctx, l.customers, s.layout.kind)
	}
	if l.customers == nil {
		l.customers = newKnown(nil)
		if err := l.walk(ctx, l.customers, customers()); err != nil {
			return nil, err
		}
	}
	k := newKnown(s.layout)
	return k, l.walk(ctx, k, s.layout.kind)
}

func (l *loader) walk(ctx context.Context, k *known, kind *kind) error {
	if err := k.load(ctx, l.client, kind, l.path(kind)); err != nil {
		return fmt.Errorf("reading the tenant's %s: %w", kind.name, err)
	}
	return nil
}

func (l *loader) path(k *kind) string {
	return "/tenants/" + string(tenant.ID(l.command.Tenant)) + "/" + k.name
}

// task is a row that needs a request: a POST, or, if an object with its reference
// is there, a GET to compare with it.
type task struct {
	row   *row
	there int64 // that object's id; 0 for none
}

// file loads one file. It returns when all of its rows have their outcome or
// nothing more is to be read.
func (l *loader) file(ctx context.Context, s *source, k *known) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	tasks := make(chan task)
	var workers, progress sync.WaitGroup
	for range l.command.Parallel {
		workers.Go(func() {
			for t := range tasks {
				if err := l.request(ctx, s, k, t); err != nil {
					stop(err)
				}
			}
		})
	}
	done := make(chan struct{})
	progress.Go(func() { l.showProgress(s, done) })

	err := l.read(ctx, s, k, tasks)
	close(tasks)
	workers.Wait()
	close(done)
	progress.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// read hands the rows that need a request to the workers, and settles the others.
func (l *loader) read(ctx context.Context, s *source, k *known, tasks chan<- task) error {
	p := &parser{layout: s.layout, tenant: l.command.Tenant, currency: l.command.Currency, customer: l.customers.customer}
	for ctx.Err() == nil {
		record, line, err := s.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if broken := (*syntaxError)(nil); errors.As(err, &broken) {
			stop := fmt.Errorf("%s is not CSV from line %d on; what follows was not read", s.path, broken.line)
			return errors.Join(l.fail(s, &row{kind: s.layout.kind}, &rowError{line: broken.line, code: codeSyntax, message: broken.reason}), stop)
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", s.path, err)
		}
		if err := l.row(ctx, s, k, p, record, line, tasks); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (l *loader) row(ctx context.Context, s *source, k *known, p *parser, record []string, line int, tasks chan<- task) error {
	r, err := p.parse(record, line)
	if bad := (*rowError)(nil); errors.As(err, &bad) {
		return l.fail(s, r, bad)
	}
	r.sum = s.layout.digest(&r.object)
	before, err := k.claim(r)
	if err != nil {
		return l.fail(s, r, &rowError{line: line, reference: r.reference(), code: codeDuplicate, message: err.Error()})
	}
	if before.id != 0 && before.sum == r.sum {
		l.tally.count(r, alreadyThere)
		return nil
	}
	select {
	case tasks <- task{row: r, there: before.id}:
		return nil
	case <-ctx.Done():
		l.tally.count(r, unfinished)
		return context.Cause(ctx)
	}
}

// request settles one row. An error means that the import cannot go on.
func (l *loader) request(ctx context.Context, s *source, k *known, t task) error {
	var err error
	var o outcome
	if t.there != 0 {
		o, err = alreadyThere, l.compare(ctx, s, t)
	} else {
		o, err = l.create(ctx, k, t.row)
	}
	if err == nil {
		l.tally.count(t.row, o)
		return nil
	}
	if differs := (*rowError)(nil); errors.As(err, &differs) {
		return l.fail(s, t.row, differs)
	}
	if refused := (*refusal)(nil); errors.As(err, &refused) && refused.concerns(t.row) {
		return l.fail(s, t.row, &rowError{
			line: t.row.line, reference: t.row.reference(), code: refused.slug, message: refused.Error() + refused.hint(),
		})
	}
	l.tally.count(t.row, unfinished)
	return err
}

func (l *loader) create(ctx context.Context, k *known, r *row) (outcome, error) {
	got, err := l.client.do(ctx, "POST", l.path(r.kind), r.key, r.body, maxAnswer)
	if err != nil {
		return unfinished, err
	}
	o, err := decodeObject(r.kind, got.body)
	if err != nil {
		return unfinished, err
	}
	// A replay may be the answer to an earlier attempt of this very run, made by
	// us or by the gateway. Ids only grow, so they tell.
	if newer := k.created(r, o.id); got.replayed && !newer {
		return alreadyThere, nil
	}
	return created, nil
}

// compare reads the object that has the row's reference. Its error is a *rowError
// if they differ.
func (l *loader) compare(ctx context.Context, s *source, t task) error {
	got, err := l.client.do(ctx, "GET", fmt.Sprintf("%s/%d", l.path(t.row.kind), t.there), "", nil, maxAnswer)
	if err != nil {
		return err
	}
	have, err := decodeObject(t.row.kind, got.body)
	if err != nil {
		return err
	}
	if all := s.layout.differences(&t.row.object, &have); len(all) > 0 {
		return &rowError{
			line: t.row.line, reference: t.row.reference(), code: codeDiffers,
			message: fmt.Sprintf("%s %d is there already and differs: %s", t.row.kind.noun, t.there, strings.Join(all, "; ")),
		}
	}
	return nil
}

// fail settles a row as failed. Its error is errTooMany when that was one too many.
func (l *loader) fail(s *source, r *row, err *rowError) error {
	l.tally.fail(l.console, s.path, r, err)
	if most := l.command.MaxErrors; most > 0 && l.tally.failures() >= most {
		return fmt.Errorf("%w (--max-errors %d)", errTooMany, most)
	}
	return nil
}

// why is the reason in the summary why the import stopped, "" if it did not.
func (l *loader) why(ctx context.Context, stopped error) string {
	if stopped == nil {
		return ""
	}
	if ctx.Err() != nil {
		return "interrupted"
	}
	var refused *refusal
	if errors.As(stopped, &refused) {
		switch refused.status {
		case 401:
			return "the gateway does not accept the token: " + refused.Error()
		case 404:
			return fmt.Sprintf("tenant %s is unknown to the token's user: %s", l.command.Tenant, refused.Error())
		}
	}
	return stopped.Error()
}

// showProgress writes how far the file is until done is closed, and once more then.
func (l *loader) showProgress(s *source, done <-chan struct{}) {
	every := offTerminal
	if l.console.terminal {
		every = onTerminal
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			text := l.tally.line(s.layout.kind)
			if s.size > 0 {
				text = fmt.Sprintf("%s (%d%% of the file)", text, min(100, 100*s.read.Load()/s.size))
			}
			l.console.progress(text)
		case <-done:
			l.console.line("%s", l.tally.line(s.layout.kind))
			return
		}
	}
}
