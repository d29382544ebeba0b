// Command worker is the fifth step of the shop: it makes invoices for it in another process, which reaches
// neither the database nor the secret of the sign-in.
//
//	SHOP_WORKER_KEY=... go run ./examples/shop/worker -shop http://127.0.0.1:8085/v2
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/podyard/podyard/examples/shop/invoice"
	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/serverless"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	url := flag.String("shop", "http://127.0.0.1:8085/v2", "`URL` of the shop's interface")
	flag.Parse()
	err := worker.Run(ctx, serverless.JSONWorker[invoice.Order, invoice.Invoice]{Func: makeInvoice}, &worker.Options{
		URL: *url, Endpoint: "invoice", Key: os.Getenv("SHOP_WORKER_KEY"), Concurrency: 8, Logger: slog.Default(),
	})
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func makeInvoice(ctx context.Context, t *serverless.JSONTask[invoice.Order]) (invoice.Invoice, error) {
	return invoice.Make(ctx, t.Input, func(done, all int) error { return t.Progress(ctx, [2]int{done, all}) })
}
