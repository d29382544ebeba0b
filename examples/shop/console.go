package main

import (
	"context"
	"net/http"

	"github.com/podyard/podyard/examples/shop/signin"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/console"
	"github.com/podyard/podyard/httpapi/server"
)

// users are the customers as users of the interface, whose keys are the cookies of the shop. It is step 4.
type users struct{ *signin.SignIn }

// Authenticate implements httpapi.Authenticator. Customers see their own invoices, and change nothing.
func (u users) Authenticate(_ context.Context, key string) (httpapi.Identity, error) {
	customer, ok := u.Customer(key)
	if !ok {
		return httpapi.Identity{}, httpapi.ErrKey
	}
	return httpapi.Identity{User: customer, Scopes: []httpapi.Permission{{Area: "endpoint", Endpoint: "invoice", Level: httpapi.Read}}}, nil
}

// console serves the console to those who have signed in to the shop.
func (u users) console(srv *server.Server) http.Handler {
	c := must(console.New(srv.Handler(), &console.Options{Auth: u, Jobs: srv.Services().Jobs, Identify: u.Session}))
	return u.Only(func(w http.ResponseWriter, r *http.Request, _ string) { c.ServeHTTP(w, r) })
}
