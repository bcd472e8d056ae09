package kubernetes

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/warmpath/warmpath/integration/envoyrun"
)

const adminToken = "admin-of-a-test"

// Cluster is an API server and its etcd.
type Cluster struct {
	// Kubeconfig is a file with all rights.
	Kubeconfig string

	dir, bin  string
	etcd, api *exec.Cmd
	etcdURL   string
	port      string
}

// Start runs a cluster whose files lie in dir, and waits until it is ready.
func Start(ctx context.Context, bin, dir string) (*Cluster, error) {
	c := &Cluster{dir: dir, bin: bin, Kubeconfig: filepath.Join(dir, "admin.yaml")}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"sa.pub":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv": []byte(adminToken + `,admin,uid-admin,"system:masters"` + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	client, err := freePort()
	if err != nil {
		return nil, err
	}
	peer, err := freePort()
	if err != nil {
		return nil, err
	}
	if c.port, err = freePort(); err != nil {
		return nil, err
	}
	c.etcdURL = "http://127.0.0.1:" + client
	peerURL := "http://127.0.0.1:" + peer
	c.etcd, err = c.start("etcd", "--unsafe-no-fsync", "--data-dir="+filepath.Join(dir, "etcd"), "--listen-client-urls="+c.etcdURL, "--advertise-client-urls="+c.etcdURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=default="+peerURL, "--log-level=error")
	if err != nil {
		return nil, err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, os.WriteFile(c.Kubeconfig, []byte(c.kubeconfig(adminToken)), 0o600)
}

// StartAPIServer starts the API server, at the same address each time, and waits
// until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) (err error) {
	in := func(name string) string { return filepath.Join(c.dir, name) }
	c.api, err = c.start("kube-apiserver", "--etcd-servers="+c.etcdURL, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+c.port,
		"--cert-dir="+in("certs"), "--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--service-account-key-file="+in("sa.pub"),
		"--service-account-signing-key-file="+in("sa.key"), "--token-auth-file="+in("tokens.csv"), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount", "--v=0")
	if err != nil {
		return err
	}
	// Its certificate is its own, made at the first start.
	probe := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} //nolint:gosec // asks for readiness alone
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+c.port+"/readyz", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		if resp, err := probe.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver isn't ready: %w\n%s", ctx.Err(), c.logTail("kube-apiserver"))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// StopAPIServer kills the API server: nothing is said to those who watch.
func (c *Cluster) StopAPIServer() {
	if c.api != nil {
		_ = c.api.Process.Kill()
		_ = c.api.Wait()
		c.api = nil
	}
}

// Stop ends the cluster.
func (c *Cluster) Stop() {
	c.StopAPIServer()
	_ = c.etcd.Process.Kill()
	_ = c.etcd.Wait()
}

// KubeconfigOf writes a kubeconfig for the bearer of a token.
func (c *Cluster) KubeconfigOf(name, token string) (string, error) {
	path := filepath.Join(c.dir, name+".yaml")
	return path, os.WriteFile(path, []byte(c.kubeconfig(token)), 0o600)
}

func (c *Cluster) kubeconfig(token string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:%s", certificate-authority: %q}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, c.port, filepath.Join(c.dir, "certs", "apiserver.crt"), token)
}

func (c *Cluster) start(name string, args ...string) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = c.dir, log, log, envoyrun.DieWithParent()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return cmd, nil
}

func (c *Cluster) logTail(name string) []byte {
	data, err := os.ReadFile(filepath.Join(c.dir, name+".log"))
	if err != nil {
		return []byte(err.Error())
	}
	return data[max(0, len(data)-4000):]
}

func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}
