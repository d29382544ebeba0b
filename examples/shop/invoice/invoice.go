// Package invoice is the work of the shop: a PDF with a page for each item of an order. It knows nothing
// of queues.
package invoice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// An Order is what a customer buys.
type Order struct {
	Reference string // of the customer, who has one order with it
	Items     []string
}

// Check returns what is wrong with an order.
func (o Order) Check() error {
	if n := len(o.Items); n == 0 || n > 1000 {
		return errors.New("an order has 1 to 1000 items")
	}
	return nil
}

// An Invoice is what is made.
type Invoice struct {
	PDF []byte
}

// perPage stands for the time that real pages take, with pictures to fetch.
const perPage = 20 * time.Millisecond

// Make makes the invoice of an order, and calls progress after each page.
func Make(ctx context.Context, o Order, progress func(done, all int) error) (Invoice, error) {
	if err := o.Check(); err != nil {
		return Invoice{}, err
	}
	var d document
	font := d.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
	pages, kids := font+1+2*len(o.Items), ""
	for i, item := range o.Items {
		select {
		case <-ctx.Done():
			return Invoice{}, context.Cause(ctx)
		case <-time.After(perPage):
		}
		page := fmt.Sprintf("BT /F1 18 Tf 72 720 Td (%s) Tj ET", escape.Replace(item))
		content := d.add("<< /Length %d >>\nstream\n%s\nendstream", len(page), page)
		kids += fmt.Sprintf("%d 0 R ", d.add("<< /Type /Page /Parent %d 0 R /Contents %d 0 R /Resources << /Font << /F1 %d 0 R >> >> >>", pages, content, font))
		if err := progress(i+1, len(o.Items)); err != nil {
			return Invoice{}, err
		}
	}
	d.add("<< /Type /Pages /Count %d /MediaBox [0 0 595 842] /Kids [%s] >>", len(o.Items), kids)
	return Invoice{d.end(d.add("<< /Type /Catalog /Pages %d 0 R >>", pages))}, nil
}

var escape = strings.NewReplacer("\\", "\\\\", "(", "\\(", ")", "\\)")

// A document is a PDF file while it is written.
type document struct {
	bytes.Buffer

	at []int // where each object begins
}

// add writes an object and returns its number.
func (d *document) add(format string, args ...any) int {
	if len(d.at) == 0 {
		d.WriteString("%PDF-1.4\n")
	}
	d.at = append(d.at, d.Len())
	_, _ = fmt.Fprintf(d, "%d 0 obj\n"+format+"\nendobj\n", append([]any{len(d.at)}, args...)...)
	return len(d.at)
}

// end writes the table of objects, and returns the file.
func (d *document) end(root int) []byte {
	start := d.Len()
	_, _ = fmt.Fprintf(d, "xref\n0 %d\n0000000000 65535 f \n", len(d.at)+1)
	for _, at := range d.at {
		_, _ = fmt.Fprintf(d, "%010d 00000 n \n", at)
	}
	_, _ = fmt.Fprintf(d, "trailer << /Size %d /Root %d 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(d.at)+1, root, start)
	return d.Bytes()
}
