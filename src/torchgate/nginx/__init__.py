"""Reading ``nginx.conf``. Room prepared: nothing here yet.

Will hold parse and translate: an existing configuration in, our own configuration and a list of what differs out.
"""
