package main

import (
	"io"
	"net/http"
	"os"
	"strings"
)

// takesAndEnds has this program of tests be a worker that takes a job and ends without a result.
const takesAndEnds = "TEST_WORKER_TAKES_AND_ENDS"

func takeAndEnd() error {
	target := strings.ReplaceAll(os.Getenv("RUNPOD_WEBHOOK_GET_JOB"), "$ID", os.Getenv("RUNPOD_POD_ID")) + "&job_in_progress=0"
	for {
		r, err := http.NewRequest(http.MethodGet, target, http.NoBody)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", os.Getenv("RUNPOD_AI_API_KEY"))
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, a.Body)
		_ = a.Body.Close()
		if err != nil || a.StatusCode == http.StatusOK {
			return err
		}
	}
}
