"""What registries of images say about an image: the command that it runs by itself.

`names`     an image's name, as engines read it
`client`    the registries' HTTP API, version 2: logins, images for several processors, configurations
`addresses` connections that reach public addresses, and listed hosts
"""
