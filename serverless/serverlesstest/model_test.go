package serverlesstest_test

import (
	"strings"
	"testing"

	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// The model keeps every rule of the suite but those it says it leaves out.
func TestTheModelKeepsTheRules(t *testing.T) {
	concurrent := map[string]bool{"EachJobHasOneClaim": true, "OneIdOneJob": true, "OneEnd": true, "DeliverersShareTheWork": true, "ChunksOfManyWorkers": true, "SweepersShareTheWork": true, "OneOfManyTwinsWins": true, "OneOfManyCallersGetsAKey": true, "ConcurrentSubmitsDoNotGoOverABudget": true, "ConcurrentReportsDoNotGoOverABudget": true}
	for _, c := range serverlesstest.QueueCases() {
		if strings.HasPrefix(c.Name, "Watch") || c.Name == "WhatIsToldIsThere" || concurrent[c.Name] {
			continue
		}
		t.Run(c.Name, func(t *testing.T) { c.Run(t, &serverlesstest.Model{}) })
	}
}

var _ queue.JobQueue = (*serverlesstest.Model)(nil)
