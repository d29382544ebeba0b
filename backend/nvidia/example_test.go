package nvidia_test

import (
	"errors"
	"fmt"

	"github.com/podyard/podyard/backend/nvidia"
)

// A machine without a driver has no GPUs. That is not an error of the program.
func ExampleOpen() {
	driver, err := nvidia.Open(nil)
	switch {
	case errors.Is(err, nvidia.ErrMissing):
		fmt.Println("no GPUs here")
	case err != nil:
		fmt.Println(err)
	default:
		defer driver.Close()
	}
}
