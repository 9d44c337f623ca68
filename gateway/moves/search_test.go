package moves_test

import (
	"fmt"
	"strings"

	"celld/gateway/moves"
	"celld/store/tenant"
)

// violated says which property a state breaks, or nothing.
func (md *model) violated(w *world) string {
	active := 0
	for c := range w.cells {
		l := w.cells[c].live
		if l.state != tenant.Active {
			continue
		}
		active++
		if l.content != w.accepted {
			return fmt.Sprintf("lost write: C%d serves without a write that was accepted", 2+3*c)
		}
		if w.routes&(1<<l.epoch) == 0 {
			return "activation without COMMIT: a cell serves at an epoch that was never placed"
		}
	}
	if active > 1 {
		return "two cells accept writes"
	}
	used := uint16(1 << 1)
	for i := range md.bounds.moves {
		if w.recs[i] == 0 {
			continue
		}
		m := md.rec(w, i)
		if used&(1<<m.EpochTo) != 0 {
			return "an epoch was given out twice"
		}
		used |= 1 << m.EpochTo
		from := w.cells[cellOf(m.From)].live
		same := from.state != 0 && from.epoch == uint8(m.EpochFrom)
		if m.W.Index != 0 && !m.State.Aborted() && same && mark(0, from.content).Sequence > m.W.Sequence {
			return "a write was accepted at the source after W"
		}
		if m.State.Committed() && same && from.state == tenant.Active {
			return "the source writes after COMMIT"
		}
		to := w.cells[cellOf(m.To)].live
		if m.State.Aborted() && to.epoch == uint8(m.EpochTo) && to.state != 0 {
			return "activation after ABORT"
		}
	}
	return ""
}

// ended reports whether w is a good end: all moves are over, one cell is active,
// the one that the directory names, and nothing is left over.
func (md *model) ended(w *world) bool {
	for i := range md.bounds.moves {
		if w.recs[i] != 0 && !md.rec(w, i).State.Over() {
			return false
		}
	}
	for c := range w.cells {
		cl := w.cells[c]
		owns := c == int(w.placed)
		if cl.stage.by != 0 || owns != (cl.live.state == tenant.Active) || owns && cl.live.epoch != w.epoch {
			return false
		}
	}
	return true
}

// hostile holds the transition function itself against every event that may come
// late, twice, or from somebody else; once for each record that is met.
func (md *model) hostile(m moves.Move) {
	fail := func(e moves.Event, what string) {
		md.failures = append(md.failures, fmt.Sprintf("%s: %v by %v of term %d", what, m, e.What, e.Term))
	}
	for what := moves.Claims; what <= moves.Drops; what++ {
		e := moves.Event{Move: m.ID, Epoch: m.EpochTo, Term: m.Term, What: what, Attempt: m.Attempt, At: moves.Watermark{Index: 999, Sequence: 99}, Reason: "hostile",
			Proof: moves.Proof{State: tenant.Frozen, Epoch: m.EpochFrom, W: moves.Watermark{Index: 998}, Source: pages, Staged: pages, Durable: 2, Voters: 3}}
		other := []moves.Event{e, e, e, e}
		other[0].Move = moveID(20)
		other[1].Epoch--
		other[2].Term--
		other[3].Term = 0
		for k, o := range other {
			at := entry
			if m.Term == 0 && k == 2 {
				continue
			}
			if next, err := moves.Step(m, o, at); err == nil || next != m {
				fail(o, "an event of another move, epoch, term or of nobody was taken")
			}
		}
		if m.Attempt > 1 && what >= moves.Copied && what <= moves.Broke {
			old := e
			old.Attempt--
			if next, err := moves.Step(m, old, entry); err == nil || next != m {
				fail(old, "an event of an earlier attempt was taken")
			}
		}
		if m.Term == 0 {
			continue
		}
		next, err := moves.Step(m, e, entry)
		if err != nil {
			if next != m {
				fail(e, "a refusal changed the record")
			}
			continue
		}
		if again, err := moves.Step(next, e, entry); what != moves.Broke && (err != nil && next != m || again != next) {
			fail(e, fmt.Sprintf("the repetition is no repetition (%v)", err))
		}
		if m.Decision.Index != 0 && next.Decision != m.Decision {
			fail(e, "a decision changed")
		}
		if m.W.Index != 0 && next.W != m.W || m.Arrived.Index != 0 && next.Arrived != m.Arrived {
			fail(e, "a watermark changed")
		}
		if b, err := next.Encode(); err != nil {
			fail(e, err.Error())
		} else if back, err := moves.Decode(b); err != nil || back != next {
			fail(e, "a record does not survive its encoding")
		}
	}
}

// found is the outcome of a search.
type found struct {
	states, steps, depth int
	records              int
	property             string  // that is broken; "" for none
	trace                []label // the shortest way to it
	end                  string
	met                  map[moves.State]bool
	taken                map[label]bool // transitions, whichever the move
}

func (f found) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, after %d steps (%d states met):\n", f.property, len(f.trace), f.states)
	for k, l := range f.trace {
		fmt.Fprintf(&b, "  %2d. %s\n", k+1, l)
	}
	return b.String() + f.end
}

// edge is a step that progress may count on.
type edge struct{ from, to int32 }

// search visits every state that can be reached, breadth first, so that the first
// one that is wrong is a nearest one. Then it looks for states from which no good
// end can be reached without another fault.
func search(b bounds, wrong mistakes) found {
	md := newModel(b, wrong)
	first := md.start()
	states := []world{first}
	index := map[world]int32{first: 0}
	parent, how := []int32{-1}, []label{{}}
	depth := []uint16{0}
	var fair []edge
	f := found{met: map[moves.State]bool{}, taken: map[label]bool{}}
	fails := func(at int32, property string) found {
		f.states, f.records, f.property = len(states), len(md.recs)-1, property
		f.end = fmt.Sprintf("  then: %+v\n", states[at])
		for ; parent[at] >= 0; at = parent[at] {
			f.trace = append([]label{how[at]}, f.trace...)
		}
		return f
	}
	for at := int32(0); int(at) < len(states); at++ {
		if why := md.violated(&states[at]); why != "" {
			return fails(at, why)
		}
		md.next(states[at], func(to world, l label, fault bool) {
			f.steps++
			f.taken[label{op: l.op, x: l.x}] = true
			n, ok := index[to]
			if !ok {
				n = int32(len(states))
				index[to] = n
				states, parent, how, depth = append(states, to), append(parent, at), append(how, l), append(depth, depth[at]+1)
			}
			if !fault {
				fair = append(fair, edge{at, n})
			}
		})
		if len(md.failures) > 0 {
			return fails(at, md.failures[0])
		}
	}
	f.depth = int(depth[len(depth)-1])
	if stuck := md.stuck(states, fair); stuck >= 0 {
		return fails(stuck, "no good end can be reached")
	}
	f.states, f.records = len(states), len(md.recs)-1
	for _, m := range md.recs {
		f.met[m.State] = true
	}
	return f
}

// stuck is the nearest state from which no good end can be reached, or -1.
func (md *model) stuck(states []world, fair []edge) int32 {
	start := make([]int32, len(states)+1) // of each state's part of back
	for _, e := range fair {
		start[e.to+1]++
	}
	for k := 1; k < len(start); k++ {
		start[k] += start[k-1]
	}
	back, fill := make([]int32, len(fair)), append([]int32(nil), start...)
	for _, e := range fair {
		back[fill[e.to]] = e.from
		fill[e.to]++
	}
	good := make([]bool, len(states))
	var todo []int32
	for k := range states {
		if md.ended(&states[k]) {
			good[k] = true
			todo = append(todo, int32(k))
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range back[start[at]:start[at+1]] {
			if !good[from] {
				good[from] = true
				todo = append(todo, from)
			}
		}
	}
	for k := range good {
		if !good[k] {
			return int32(k)
		}
	}
	return -1
}
