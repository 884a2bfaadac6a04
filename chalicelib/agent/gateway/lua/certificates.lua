-- The certificate for the host that a client names, from shared memory. Without one, the handshake uses the certificate
-- without a name that nginx was started with.

local services = require "services"
local ssl = require "ngx.ssl"

local M = {}

function M.show()
    local name = ssl.server_name()
    local found = name and services.entry("certificate", name:lower())
    if not found then
        return
    end
    if not found.chain then  -- parsed once a worker: `found` is cached until the configuration changes
        found.chain = assert(ssl.parse_pem_cert(found.certificate))
        found.private = assert(ssl.parse_pem_priv_key(found.key))
    end
    assert(ssl.clear_certs())
    assert(ssl.set_cert(found.chain))
    assert(ssl.set_priv_key(found.private))
end

return M
