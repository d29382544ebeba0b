package client_test

import (
	"context"

	"github.com/podyard/podyard/httpapi/client"
)

var batchMethods = map[string]method{
	"listBatches": func(ctx context.Context, w *world) error {
		list, err := w.Client.Jobs("q").ListBatches(ctx)
		return has(func(b client.Batch) bool { return b.ID == w.batch && b.Total == 1 }, list, err)
	},
	"createBatch": func(ctx context.Context, w *world) error {
		b, err := w.Client.Jobs("q").CreateBatch(ctx, client.Batch{Name: "n"}, true, client.JobRequest{}, client.JobRequest{})
		if err != nil {
			return err
		}
		b, err = w.Client.Jobs("q").GetBatch(ctx, b.ID)
		return is(func(b client.Batch) bool { return b.Status == "FINALIZED" && b.Total == 2 && b.Name == "n" }, b, err)
	},
	"getBatch": func(ctx context.Context, w *world) error {
		b, err := w.Client.Jobs("q").GetBatch(ctx, w.batch)
		return is(func(b client.Batch) bool { return b.Status == "DRAFT" && b.Endpoint == "q" && b.CreatedAt > 0 }, b, err)
	},
	"updateBatch": func(ctx context.Context, w *world) error {
		b, err := w.Client.Jobs("q").RenameBatch(ctx, w.batch, "n")
		return is(func(b client.Batch) bool { return b.Name == "n" }, b, err)
	},
	"addToBatch": func(ctx context.Context, w *world) error {
		b, err := w.Client.Jobs("q").AddToBatch(ctx, w.batch, client.JobRequest{})
		return is(func(b client.Batch) bool { return b.Total == 2 }, b, err)
	},
	"listBatchRequests": func(ctx context.Context, w *world) error {
		list, _, err := w.Client.Jobs("q").BatchRequests(ctx, w.batch, 0, 10)
		return has(func(j client.Job) bool { return j.ID == w.batch+"-0" && j.Status == client.InQueue }, list, err)
	},
	"deleteBatchRequest": func(ctx context.Context, w *world) error {
		b, err := w.Client.Jobs("q").DeleteBatchRequest(ctx, w.batch, w.batch+"-0")
		return is(func(b client.Batch) bool { return b.Total == 0 }, b, err)
	},
	"finalizeBatch": func(ctx context.Context, w *world) error {
		b, err := w.Client.Jobs("q").FinalizeBatch(ctx, w.batch)
		return is(func(b client.Batch) bool { return b.Status == "FINALIZED" }, b, err)
	},
	"cancelBatch": func(ctx context.Context, w *world) error {
		b, err := w.Client.Jobs("q").CancelBatch(ctx, w.batch)
		return is(func(b client.Batch) bool { return b.Status == "CANCELLED" && b.Failed == 1 }, b, err)
	},
}
