package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/warmpath/warmpath/control/discovery"
)

// connect makes a client for the cluster that cfg names. Nothing is asked yet.
func connect(cfg *discovery.Kubernetes) (client dynamic.Interface, host string, err error) {
	var rc *rest.Config
	if cfg.Kubeconfig == "" && cfg.Context == "" {
		if rc, err = rest.InClusterConfig(); err != nil {
			return nil, "", fmt.Errorf("%s: %w (outside of a cluster name a kubeconfig)", cfg, err)
		}
	} else {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = cfg.Kubeconfig
		rc, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: cfg.Context}).ClientConfig()
		if err != nil {
			return nil, "", fmt.Errorf("%s: read kubeconfig %s: %w", cfg, cmp.Or(cfg.Kubeconfig, "(default)"), err)
		}
	}
	rc.UserAgent = "warmpath-control"
	rc.WarningHandler = rest.NoWarnings{}
	if client, err = dynamic.NewForConfig(rc); err != nil {
		return nil, "", fmt.Errorf("%s: %w", cfg, err)
	}
	return client, rc.Host, nil
}

// explain says what was asked and what to do about its failure.
func explain(verb, what, host string, err error) error {
	remedy := "is the API server at " + host + " well?"
	var network net.Error
	switch {
	case apierrors.IsForbidden(err):
		remedy = "check RBAC: examples/kubernetes/rbac.yaml"
	case apierrors.IsUnauthorized(err):
		remedy = "the API server doesn't accept the credentials: check the service account or the kubeconfig"
	case apierrors.IsNotFound(err):
		remedy = "the API server has no such resource: for an InferencePool install its CRD"
	case errors.As(err, &network):
		remedy = "can the API server at " + host + " be reached?"
	}
	// The URL has numbers that differ from try to try: the same failure should
	// read the same.
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	return fmt.Errorf("kubernetes: %s %s: %w (%s)", verb, what, err, remedy)
}
