package cron_test

import (
	"fmt"
	"time"

	"github.com/podyard/podyard/serverless/cron"
)

// Half past two does not exist in the night in which the clock goes forward.
func ExampleExpression_Next() {
	e, err := cron.Parse("30 2 * * *")
	if err != nil {
		fmt.Println(err)
		return
	}
	berlin, err := cron.Zone("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 3, 28, 0, 0, 0, 0, berlin)
	for range 3 {
		at = e.Next(at, berlin)
		fmt.Println(at.In(berlin))
	}
	// Output:
	// 2026-03-28 02:30:00 +0100 CET
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
}

func ExampleParse() {
	_, err := cron.Parse("0 25 * * *")
	fmt.Println(err)
	// Output: hour: 25 is not from 0 to 23
}
