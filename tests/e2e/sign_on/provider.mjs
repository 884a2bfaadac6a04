// `node provider.mjs`: an OpenID Connect provider on a free port of the loopback, which is printed first.
//
// Whoever gives a login has an account. `GET /-/ann+gpu+ops` makes ann a member of gpu and ops, and of no other groups;
// `ann?` has no verified e-mail address.
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const device = 'urn:ietf:params:oauth:grant-type:device_code';

const groups = new Map();

function account(ctx, login) {
  const claims = {
    sub: login,
    preferred_username: login.replace('?', ''),
    email: `${login.replace('?', '')}@example.com`,
    email_verified: !login.includes('?'),
    groups: groups.get(login) ?? [],
  };
  return { accountId: login, claims: () => claims };
}

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address();
  const native = {
    application_type: 'native',
    token_endpoint_auth_method: 'none',
    grant_types: ['authorization_code', device],
    redirect_uris: ['http://localhost/auth/callback', 'http://localhost/auth/corp/callback'],
  };
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [
      { client_id: 'dstack', ...native },
      {
        client_id: 'web',
        client_secret: 'web-secret',
        redirect_uris: ['https://console.example.com/auth/web/callback'],
      },
    ],
    claims: { openid: ['sub'], profile: ['preferred_username', 'groups'], email: ['email', 'email_verified'] },
    features: { deviceFlow: { enabled: true } },
    findAccount: account,
    cookies: { keys: ['a key of a test'] },
    pkce: { required: () => true },
  });
  const answer = provider.callback();
  server.on('request', (request, response) => {
    if (!request.url.startsWith('/-/')) return answer(request, response);
    const [login, ...wanted] = decodeURIComponent(request.url.slice(3)).split('+');
    groups.set(login, wanted);
    return response.end();
  });
  console.log(port);
});
