package cellfsm_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"syscall"
	"testing"

	"celld/raftfsm"
	"celld/raftfsm/cellfsm"
	"celld/store/tenant"
)

// BenchmarkCreateInvoice is what one replica does for writes: decode, fence, key,
// rows, over 100 tenants in entries of 16 commands. Its own metric is the CPU of
// the process for one command, which a busy machine changes less than the time.
func BenchmarkCreateInvoice(b *testing.B) {
	const tenants, perEntry = 100, 16
	space, err := cellfsm.OpenSpace(b.TempDir(), tenants, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer space.Close()
	apply := raftfsm.NewApplier(cellfsm.Commands(space), space.Guard, space)
	index, key := uint64(0), 0
	do := func(commands ...raftfsm.Command) {
		index++
		out, err := apply.Apply(index, commands...)
		if err != nil {
			b.Fatal(err)
		}
		for _, o := range out {
			if o.Err != nil {
				b.Fatal(o.Err)
			}
		}
	}
	make := func(n raftfsm.Number, uid tenant.UID, body any) raftfsm.Command {
		c, err := raftfsm.NewCommand(n, string(uid), body)
		if err != nil {
			b.Fatal(err)
		}
		key++
		c.At = int64(key)
		c.Actor = "U7"
		if uid != "" {
			c.Epoch = 1
			c.Key = &raftfsm.Key{Actor: "U7", Operation: "createInvoice", Key: fmt.Sprint("key-", key)}
		}
		return c
	}
	do(make(cellfsm.InitCellNumber, "", cellfsm.InitCell{Name: "C2", Key: testKey}))
	var uids []tenant.UID
	for i := range tenants {
		uid, err := tenant.NewUID(bytes.NewReader(append(bytes.Repeat([]byte{1}, 15), byte(i))))
		if err != nil {
			b.Fatal(err)
		}
		uids = append(uids, uid)
		do(make(cellfsm.ProvisionTenantNumber, "", provision(uid, tenant.ID(fmt.Sprint("T", i)), 1)))
		do(make(cellfsm.CreateCustomerNumber, uid, cellfsm.CreateCustomer{Fields: cellfsm.CustomerFields{Name: "A"}}))
	}
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		var commands []raftfsm.Command
		for range perEntry {
			commands = append(commands, make(cellfsm.CreateInvoiceNumber, uids[key*7%tenants], cellfsm.CreateInvoice{
				Fields: cellfsm.InvoiceFields{Customer: 1, Amount: 1250, Currency: "USD", Exponent: 2}, Status: cellfsm.Draft,
			}))
		}
		do(commands...)
	}
	b.ReportMetric((cpuTime(b)-before)*1e6/float64(b.N*perEntry), "cpu-us/command")
}

func cpuTime(b *testing.B) (seconds float64) {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return float64(use.Utime.Nano()+use.Stime.Nano()) / 1e9
}
