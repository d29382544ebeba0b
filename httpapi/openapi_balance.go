package httpapi

import "github.com/podyard/podyard/internal/openapi"

func (b *describer) describeBalance() map[string]description {
	anything := &openapi.Schema{}
	wanted := &openapi.Parameter{
		Name: workerHeader, In: "header", Schema: openapi.Of("string"),
		Description: "The id of a worker that is preferred. After strict and a blank: no other one.",
	}
	return map[string]description{
		"proxy": {
			summary: "Send a request to a worker of a load-balancing endpoint",
			text:    "Path, query, body and answer are whatever the worker makes of them. A request is held for 2 minutes until there is a worker.",
			params:  []*openapi.Parameter{wanted}, body: anything, optional: true, answers: ok(anything),
		},
	}
}
