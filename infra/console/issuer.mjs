// An OpenID Connect issuer on this machine, with pages for people: the provider of the package `oidc-provider`.

import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

/** The secret of the client. A header of it has each character that is encoded. */
export const CLIENT_SECRET = "a:client/of+the console&%";
/** The people, by the name that they enter, with their claims. No rule holds for `eve`. */
const PEOPLE = {
  ann: { groups: ["developers", "readers"], email: "ann@example.com", email_verified: true },
  eve: { groups: ["guests"], email: "ann@example.com", email_verified: false },
};

const key = (kid) => ({ ...generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" });

export class Issuer {
  /** Answers requests for a token instead of the provider. */
  failure;

  /** Takes a port. `localhost` is another site than 127.0.0.1, as an issuer of people is. */
  static async start() {
    const issuer = new Issuer();
    issuer.listener = createServer();
    await new Promise((wake) => issuer.listener.listen(0, "127.0.0.1", wake));
    issuer.url = `http://localhost:${issuer.listener.address().port}`;
    return issuer;
  }

  /** Returns the value of `EBB_OIDC`. The claims of a scope are those of the userinfo endpoint, as OpenID Connect defines them. */
  entries() {
    const rules = [
      { when: "'developers' in claims.groups", scopes: ["read"] },
      { when: "claims.email_verified && claims.email == 'ann@example.com'", scopes: ["plugins:write"] },
    ];
    const signIn = { clientId: "console", clientSecret: "CONSOLE_CLIENT", scope: "openid email groups", userInfo: true };
    return JSON.stringify([{ issuer: this.url, audience: "https://ebb.example.com", rules, signIn }]);
  }

  /** Begins to answer, with the console of a server as its client. */
  serve(server) {
    const provider = new Provider(this.url, {
      clients: [{ client_id: "console", client_secret: CLIENT_SECRET, redirect_uris: [`${server}/console/sign-in/return`] }],
      claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
      jwks: { keys: [key("first"), key("second")] },
      cookies: { keys: ["a key of cookies"] },
      features: { devInteractions: { enabled: true } },
      discovery: { prompt_values_supported: ["none", "login", "consent"] },
      findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...PEOPLE[id] }) }),
    });
    const answer = provider.callback();
    this.listener.on("request", (request, response) => {
      if (this.failure && request.url === "/token") this.failure(response);
      else answer(request, response);
    });
  }

  /** Signs a person in on the page of the issuer, who approves the client. */
  async approve(page, name) {
    await page.waitForURL(`${this.url}/interaction/**`);
    await page.getByPlaceholder("Enter any login").fill(name);
    await page.getByPlaceholder("and password").fill("any");
    await page.getByRole("button", { name: "Sign-in" }).click();
    await page.getByRole("button", { name: "Continue" }).click();
  }

  stop() {
    this.listener.closeAllConnections();
    this.listener.close();
  }
}
