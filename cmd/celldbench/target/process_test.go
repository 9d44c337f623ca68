package target

import (
	"os"
	"testing"
)

func TestUsageIsRead(t *testing.T) {
	own, err := ownCPU()
	if err != nil {
		t.Fatal(err)
	}
	same, err := processCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	all, err := machineCPU()
	if err != nil {
		t.Fatal(err)
	}
	if own <= 0 || same < 0 || all < own-tick {
		t.Errorf("this process %v, by /proc %v, the machine %v", own, same, all)
	}
}

func TestFootprintSeesWhatIsHeld(t *testing.T) {
	p := &Platform{}
	before, err := p.AtRest()
	if err != nil {
		t.Fatal(err)
	}
	if before.Resident <= 0 || before.Anonymous <= 0 || before.Anonymous > before.Resident || before.Heap <= 0 || before.Files < 3 {
		t.Fatalf("%+v", before)
	}
	end := p.Watch()
	var held []*os.File
	for range 50 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, f)
	}
	during, err := end()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range held {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if during.Files < before.Files+50 || during.MostFiles != during.Files {
		t.Errorf("%d descriptors, before %d", during.Files, before.Files)
	}
}
