//go:build linux && cgo

package nvidia_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/podyard/podyard/backend/nvidia"
)

// asInventory makes the test binary print the GPUs of this machine. That needs another
// process, because one process cannot load both the fake and the real library.
const asInventory = "PODYARD_TEST_INVENTORY"

// nothing is the start of its output if there is no working driver.
const nothing = "none: "

func inventory(w io.Writer) error {
	d, err := nvidia.Open(nil)
	if err != nil {
		_, err = fmt.Fprintf(w, "%s%v\n", nothing, err)
		return err
	}
	list, err := d.Devices()
	if err != nil {
		return errors.Join(err, d.Close())
	}
	fmt.Fprintf(w, "driver %s, CUDA %s\n", d.Version().Driver, d.Version().CUDA)
	for _, dev := range list {
		load, err := d.Load(dev.UUID)
		if err != nil {
			return errors.Join(err, d.Close())
		}
		fmt.Fprintf(w, "%s %q %d MiB, MIG %v, util %d%%, memory %d%%\n", dev.UUID, dev.Name, dev.Memory>>20, dev.MIG, load.Util, load.MemoryUtil)
	}
	return d.Close()
}

func TestTheLibraryOfThisMachineIsUnderstood(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asInventory+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if why, none := strings.CutPrefix(string(out), nothing); none {
		t.Skip("needs a machine with an NVIDIA driver: ", why)
	}
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if !regexp.MustCompile(`^driver \d+\.[\d.]+, CUDA \d+\.\d+\n(GPU-[0-9a-f-]+ "[^"]+" [1-9]\d* MiB, MIG \w+, util \d+%, memory \d+%\n)*$`).Match(out) {
		t.Error("that is no inventory")
	}
}
