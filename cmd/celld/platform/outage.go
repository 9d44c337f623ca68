package platform

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"unicode"
)

// outages are the members that ended by themselves or did not start.
type outages struct {
	mu   sync.Mutex
	last map[string]error           // by member
	told map[string]map[string]bool // by member: the reasons that people were told, less their digits
}

// note keeps why a member is down and reports whether that is news.
func (o *outages) note(name string, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told[name] == nil {
		if o.last == nil {
			o.last, o.told = map[string]error{}, map[string]map[string]bool{}
		}
		o.told[name] = map[string]bool{}
	}
	o.last[name] = err
	reason := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) { // an index in the log, say, makes no other reason
			return -1
		}
		return r
	}, err.Error())
	news := !o.told[name][reason]
	o.told[name][reason] = true
	return news
}

func (o *outages) of(name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[name]
}

// ended sees to a member that ended by itself or did not start. Groups are formed
// by all of their members; once formed they go on while a majority runs.
func (p *Platform) ended(name string, err error) {
	news := p.outages.note(name, err)
	lost := fmt.Errorf("%s ended: %w", name, err)
	if !p.forming() {
		if news {
			p.options.Progress(fmt.Sprintf("%s is down: %s. It is started again and again; the others go on while they are a majority. "+
				"If something in %s is missing or damaged, put it back as it was at the last stop, never an older copy; or begin anew with another --data.",
				name, strings.ReplaceAll(err.Error(), "\n", "; "), p.folder(name)))
		}
		lost = p.lost()
	}
	if lost == nil {
		return
	}
	select {
	case p.ends <- lost:
	default: // nobody waits for the start any more, or one is enough
	}
}

// folder is where a member keeps its data.
func (p *Platform) folder(name string) string {
	if strings.Contains(name, "/") {
		return filepath.Join(p.dir, "cells", filepath.FromSlash(name))
	}
	return filepath.Join(p.dir, "gateways", name)
}

// lost is nil while no group has lost its majority to outages since the start
// began.
func (p *Platform) lost() error {
	all, down := map[string]int{}, map[string][]error{}
	for _, m := range p.Members() {
		if p.isGone(m.name) {
			continue
		}
		cell, _, isNode := strings.Cut(m.name, "/")
		group := "the gateways"
		if isNode {
			group = "cell " + cell
		}
		all[group]++
		if err := p.outages.of(m.name); err != nil {
			down[group] = append(down[group], fmt.Errorf("%s: %w", m.name, err))
		}
	}
	var lost error
	for group, errs := range down {
		if 2*(all[group]-len(errs)) <= all[group] {
			lost = errors.Join(lost, fmt.Errorf("too few of %s run: %w", group, errors.Join(errs...)))
		}
	}
	return lost
}
