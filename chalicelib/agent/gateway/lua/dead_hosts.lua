-- Detection of dead hosts. A host that loses its power or its network sends nothing, so requests to it would wait for
-- minutes, until nginx's time-outs. So connections to replicas end when their host's kernel is silent. Applications may
-- be as slow as they like: they may accept no connection for long, answer nothing, and read nothing of what is sent
-- (which TCP_USER_TIMEOUT couldn't distinguish from silence).
--
--   Sent data isn't acknowledged, though it was repeated three times, which takes less than two seconds in a network.
-- No
--     application is known to have received it, so another replica gets the request (door.lua).
--   Nothing is to be acknowledged: the kernel probes the connection, and ends it after ten seconds.
--
-- nginx has no directives for that, but marks its connections to replicas (`proxy_socket_keepalive`). By that mark each
-- worker finds them among its descriptors, after requests that may have opened some.

local ffi = require "ffi"

ffi.cdef [[
    int getsockopt(int fd, int level, int name, void *value, unsigned int *size);
    int setsockopt(int fd, int level, int name, const void *value, unsigned int size);
    int shutdown(int fd, int how);
]]

local M = {}
local CHECK_EVERY, FIND_EVERY = 0.25, 1  -- seconds
local REPEATED = 3
local IDLE, EVERY, PROBES = 4, 1, 6  -- seconds, seconds: ten in all
local SOL_SOCKET, SO_KEEPALIVE = 1, 9
local TCP, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_INFO = 6, 4, 5, 6, 11
local ESTABLISHED, BOTH_WAYS = 1, 2
local number, size = ffi.new("int[1]"), ffi.new("unsigned int[1]")
local info = ffi.new("unsigned char[3]")  -- the beginning of tcp_info: state, congestion state, retransmissions
local scheduled, changed = false, false
local connections, found_at = {}, 0  -- the descriptors of connections to replicas

-- A socket option; nil if the descriptor doesn't have it.
local function option(fd, level, name)
    size[0] = ffi.sizeof(number)
    return ffi.C.getsockopt(fd, level, name, number, size) == 0 and number[0] or nil
end

local function is_marked(fd)
    return option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1
end

local function set(fd, name, value)
    number[0] = value
    ffi.C.setsockopt(fd, TCP, name, number, ffi.sizeof(number))
end

-- A number above every descriptor of this process.
local function table_size()
    local file = assert(io.open("/proc/self/status"))
    local text = file:read("*a")
    file:close()
    return tonumber(text:match("FDSize:%s*(%d+)"))
end

local function find()
    connections, found_at, changed = {}, ngx.now(), false
    for fd = 0, table_size() - 1 do
        local idle = is_marked(fd) and option(fd, TCP, TCP_KEEPIDLE)  -- a unix socket has none
        if idle and idle ~= IDLE then  -- only once, because it makes the kernel probe at once
            set(fd, TCP_KEEPINTVL, EVERY)
            set(fd, TCP_KEEPCNT, PROBES)
            set(fd, TCP_KEEPIDLE, IDLE)
        end
        if idle then
            connections[#connections + 1] = fd
        end
    end
end

local function is_silent(fd)
    size[0] = ffi.sizeof(info)
    return ffi.C.getsockopt(fd, TCP, TCP_INFO, info, size) == 0 and info[0] == ESTABLISHED and info[2] >= REPEATED
end

local function check(premature)
    scheduled = false
    if premature then
        return
    end
    if changed and ngx.now() - found_at >= FIND_EVERY then
        find()
    end
    local open = 0
    for _, fd in ipairs(connections) do
        if is_marked(fd) then
            open = open + 1
            if is_silent(fd) then
                ffi.C.shutdown(fd, BOTH_WAYS)
            end
        end
    end
    if open > 0 or changed then
        scheduled = ngx.timer.at(CHECK_EVERY, check)
    end
end

-- Called when a request goes to a replica, perhaps over a new connection.
function M.watch()
    changed = true
    if not scheduled then
        scheduled = ngx.timer.at(CHECK_EVERY, check)
    end
end

return M
